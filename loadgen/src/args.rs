// SPDX-License-Identifier: Apache-2.0
//! The command line, and job files in fio's ini form.

use crate::failure::Failure;
use crate::job::Job;
use crate::jobfile::jobs_of;
use crate::words;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    /// Print this text and leave.
    Say(String),
    /// Run a load.
    Run(Invocation),
    /// Read back what a journal says was written.
    Verify(Invocation),
}

/// The program's own options and the jobs.
#[derive(Debug)]
pub struct Invocation {
    /// Where the result goes; None is standard output.
    pub output: Option<PathBuf>,
    /// The journal of writes.
    pub journal: Option<PathBuf>,
    /// Whether writing was allowed in so many words.
    pub allow_write: bool,
    /// Whether histograms' bins are in the result (`json+`).
    pub bins: bool,
    /// The jobs, at least one.
    pub jobs: Vec<Job>,
}

/// A larger job file than anyone writes; protects against reading a disk image as one.
const JOB_FILE_MAX: u64 = 1 << 20;

/// Read the command line, without the program's name.
pub fn read(arguments: &[String]) -> Result<Request, Failure> {
    let mut rest = arguments;
    let mut verify = false;
    match rest.first().map(String::as_str) {
        Some("verify") => {
            verify = true;
            rest = &rest[1..];
        }
        Some("run") => rest = &rest[1..],
        _ => {}
    }
    let mut output = None;
    let mut journal = None;
    let mut allow_write = false;
    let mut readonly = false;
    let mut bins = true;
    let mut file = None;
    let mut words = Vec::new();
    for argument in rest {
        let bare = argument.strip_prefix("--").unwrap_or(argument);
        let (key, value) = match bare.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (bare, None),
        };
        match (key, value) {
            ("help", None) | ("-h", None) => return Ok(Request::Say(help())),
            ("version", None) | ("-V", None) => return Ok(Request::Say(format!("virtune-load-{}", crate::VERSION))),
            ("output", Some(path)) => output = Some(some_path(key, path)?),
            ("journal", Some(path)) => journal = Some(some_path(key, path)?),
            ("allow-write", None) => allow_write = true,
            ("readonly", None) => readonly = true,
            ("output-format", Some("json+")) => bins = true,
            ("output-format", Some("json")) => bins = false,
            ("output-format", _) => return Err(Failure::usage("output-format: json+ or json")),
            ("eta", Some("never")) => {}
            ("output" | "journal", None) => return Err(Failure::usage(format!("--{key} needs a file: --{key}=FILE"))),
            (_, Some(value)) => words.push((key.to_owned(), value.trim().to_owned())),
            (_, None) if words::find(key).is_some_and(|word| word.flag) => words.push((key.to_owned(), "1".to_owned())),
            (_, None) if words::find(key).is_some() => {
                return Err(Failure::usage(format!("{key}: the value is missing")));
            }
            (_, None) if argument.starts_with('-') => {
                return Err(Failure::usage(format!("{argument}: no such option here (see --help)")));
            }
            (_, None) if file.is_none() => file = Some(PathBuf::from(argument)),
            (_, None) => return Err(Failure::usage(format!("{argument}: one job file only"))),
        }
    }
    let jobs = match file {
        Some(path) => jobs_of(&read_job_file(&path)?, &words).map_err(|failure| in_file(&path, failure))?,
        None if words.is_empty() => {
            return Err(Failure::usage("nothing to do: give key=value words or a job file (see --help)"));
        }
        None => vec![Job::read("load", &words)?],
    };
    let allow_write = allow_write && !readonly;
    let invocation = Invocation { output, journal, allow_write, bins, jobs };
    check_together(&invocation, verify)?;
    Ok(if verify { Request::Verify(invocation) } else { Request::Run(invocation) })
}

fn read_job_file(path: &Path) -> Result<String, Failure> {
    let cannot = |reason: String| Failure::usage(format!("cannot read the job file {}: {reason}", path.display()));
    let about = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
    if !about.is_file() {
        return Err(cannot("it is no regular file".to_owned()));
    }
    if about.len() > JOB_FILE_MAX {
        return Err(cannot(format!("it is larger than {JOB_FILE_MAX} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|error| cannot(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| cannot("it is not text".to_owned()))
}

fn in_file(path: &Path, failure: Failure) -> Failure {
    Failure::usage(format!("{}: {failure}", path.display()))
}

fn some_path(key: &str, path: &str) -> Result<PathBuf, Failure> {
    if path.is_empty() {
        return Err(Failure::usage(format!("--{key} needs a file: --{key}=FILE")));
    }
    Ok(PathBuf::from(path))
}

/// Check what no job can see alone.
fn check_together(invocation: &Invocation, verify: bool) -> Result<(), Failure> {
    let first = &invocation.jobs[0];
    if invocation.jobs.iter().any(|job| job.place != first.place) {
        return Err(Failure::usage("all jobs must have the same ioengine, filename, direct and hipri"));
    }
    if verify {
        return match (&invocation.journal, invocation.jobs.len()) {
            (None, _) => Err(Failure::usage("verify needs --journal=FILE")),
            (_, 1) => Ok(()),
            _ => Err(Failure::usage("verify takes one job only: where to read, and how deep")),
        };
    }
    if !invocation.allow_write && invocation.jobs.iter().any(|job| job.pattern.writes) {
        return Err(Failure::usage(format!(
            "this load would overwrite {}: say --allow-write if that is what you want",
            first.place.path
        )));
    }
    if invocation.journal.is_some()
        && (invocation.jobs.len() > 1 || !first.pattern.writes || first.offset_increment > 0 || first.mark.is_some())
    {
        return Err(Failure::usage("--journal needs a single job that writes, without offset_increment and verify"));
    }
    Ok(())
}

fn help() -> String {
    let mut text = String::from(
        "virtune-load: disk load at the speed of a guest's virtio queue, without a guest

usage: virtune-load [OPTIONS] KEY=VALUE ...          a load in fio's words
       virtune-load [OPTIONS] JOBFILE [KEY=VALUE ...] the same from an ini file; the words here win
       virtune-load verify --journal=FILE KEY=VALUE ... read back what was written

options:
  --output=FILE            write the result there instead of to standard output
  --output-format=FORMAT   json+ (with the histograms' bins) or json [json+]
  --allow-write            needed for any load that writes
  --readonly               refuse any load that writes, whatever else is said
  --journal=FILE           stamp every block, and note what was acknowledged and what was flushed
  --help, --version

exit: 0 done, also when ended early by SIGINT or SIGTERM; 1 the load or the device failed; 2 a mistake in the
request; 4 data was lost, torn or misplaced

words (defaults in brackets):
",
    );
    for word in words::WORDS {
        let name = if word.alias.is_empty() { word.name.to_owned() } else { format!("{}, {}", word.name, word.alias) };
        let _ = writeln!(text, "  {name:<22} {}", word.meaning);
    }
    text.pop();
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(line: &str) -> Result<Request, Failure> {
        read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn told(line: &str) -> String {
        let failure = ask(line).unwrap_err();
        assert_eq!(failure.code(), 2, "{failure}");
        failure.to_string()
    }

    #[test]
    fn words_with_and_without_dashes_are_the_same() {
        for line in ["ioengine=io_uring filename=d rw=read bs=8k", "--ioengine=io_uring --filename=d --rw=read --bs=8k"]
        {
            match ask(line).unwrap() {
                Request::Run(invocation) => assert_eq!(invocation.jobs[0].block, 8192),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn writing_must_be_allowed() {
        assert_eq!(
            told("ioengine=io_uring filename=d rw=randwrite"),
            "this load would overwrite d: say --allow-write if that is what you want"
        );
        assert!(ask("--allow-write ioengine=io_uring filename=d rw=randwrite").is_ok());
    }

    #[test]
    fn mistakes_are_told_in_one_sentence() {
        assert_eq!(told(""), "nothing to do: give key=value words or a job file (see --help)");
        assert_eq!(told("--fast"), "--fast: no such option here (see --help)");
        assert_eq!(told("--output"), "--output needs a file: --output=FILE");
        assert_eq!(told("rw"), "rw: the value is missing");
        assert_eq!(told("verify ioengine=io_uring filename=d"), "verify needs --journal=FILE");
        assert!(told("/nowhere/x.fio").starts_with("cannot read the job file /nowhere/x.fio: "));
        assert_eq!(
            told("--journal=j ioengine=io_uring filename=d rw=read"),
            "--journal needs a single job that writes, without offset_increment and verify"
        );
    }

    #[test]
    fn help_lists_every_word() {
        let text = help();
        assert!(words::WORDS.iter().all(|word| text.contains(word.name)));
    }

    proptest! {
        #[test]
        fn no_arguments_make_it_panic(arguments in prop::collection::vec("(--)?[a-z_-]{0,14}(=\\PC{0,12})?", 0..6)) {
            let _ = read(&arguments);
        }
    }
}
