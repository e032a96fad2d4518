// SPDX-License-Identifier: Apache-2.0
//! Job files in fio's ini form.

use crate::failure::Failure;
use crate::job::Job;
use crate::prelude::*;
use crate::words;

/// A section of a job file: its name and its options in order, `[global]` first.
pub type Section = (String, Vec<(String, String)>);

/// Read a job file's text into its sections, each with the `[global]` options that stand before it.
pub fn sections(text: &str) -> Result<Vec<Section>, Failure> {
    let mut global: Vec<(String, String)> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut inside: Option<bool> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let wrong = |reason: &str| Failure::usage(format!("line {}: {reason}", number + 1));
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.strip_suffix(']').ok_or_else(|| wrong("a section ends with `]`"))?.trim();
            if name.is_empty() {
                return Err(wrong("a section needs a name"));
            }
            inside = Some(name == "global");
            if name != "global" {
                sections.push((name.to_owned(), global.clone()));
            }
            continue;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim(), value.trim()),
            None if words::find(line).is_some_and(|word| word.flag) => (line, "1"),
            None => return Err(wrong(&format!("`{line}` is not key=value"))),
        };
        if words::find(key).is_none() {
            return Err(wrong(&format!("{key}: no such option here (see --help)")));
        }
        let option = (key.to_owned(), value.to_owned());
        match inside {
            None => return Err(wrong("an option stands before the first section")),
            Some(true) => global.push(option),
            Some(false) => {
                if let Some((_, options)) = sections.last_mut() {
                    options.push(option);
                }
            }
        }
    }
    if sections.is_empty() {
        return Err(Failure::usage("there is no job in it: a section other than [global] is missing"));
    }
    Ok(sections)
}

/// Read the jobs of a job file; `words` stand behind the options of each of them.
pub fn jobs_of(text: &str, words: &[(String, String)]) -> Result<Vec<Job>, Failure> {
    sections(text)?
        .into_iter()
        .map(|(name, mut options)| {
            options.extend_from_slice(words);
            Job::read(&name, &options).map_err(|failure| Failure::usage(format!("[{name}] {failure}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn job_files_are_read_as_fio_reads_them() {
        let text = "; a comment\n[global]\nioengine=io_uring\nfilename = d\ntime_based\nruntime=1\n\n[a]\nrw=randread\n[b]\nrw=read\nbs=64k\n";
        let jobs = jobs_of(text, &[("iodepth".to_owned(), "4".to_owned())]).unwrap();
        assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((jobs[0].depth, jobs[1].depth, jobs[1].block), (4, 4, 65536));
        assert!(jobs[0].pattern.random && jobs[0].time_based);
    }

    #[test]
    fn mistakes_in_job_files_name_the_line() {
        for (text, sentence) in [
            ("rw=read\n", "line 1: an option stands before the first section"),
            ("[a]\nfoo=1\n", "line 2: foo: no such option here (see --help)"),
            ("[a\n", "line 1: a section ends with `]`"),
            ("[]\n", "line 1: a section needs a name"),
            ("[a]\nrw\n", "line 2: `rw` is not key=value"),
            ("[global]\n", "there is no job in it: a section other than [global] is missing"),
        ] {
            assert_eq!(sections(text).unwrap_err().to_string(), sentence);
        }
    }

    proptest! {
        #[test]
        fn no_job_file_makes_it_panic(text in "(\\PC{0,30}\n|\\[[a-z]{0,6}\\]\n|[a-z_]{1,12}=[a-z0-9:,.]{0,8}\n){0,12}") {
            let _ = jobs_of(&text, &[]);
        }
    }
}
