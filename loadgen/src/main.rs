// SPDX-License-Identifier: Apache-2.0
//! The command: read what is asked, do it, print one sentence when it went wrong.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use virtune_load::args::{self, Invocation, Request};
use virtune_load::engine::{self, Ending};
use virtune_load::failure::Failure;
use virtune_load::{logs, report, system, verify};

fn main() -> ExitCode {
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn act() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.into_string())
        .collect::<Result<_, _>>()
        .map_err(|argument| Failure::usage(format!("{}: not valid UTF-8", argument.to_string_lossy())))?;
    match args::read(&arguments)? {
        Request::Say(text) => writeln!(io::stdout(), "{text}").map_err(|error| system::failure("cannot print", &error)),
        Request::Run(invocation) => run(&invocation),
        Request::Verify(invocation) => check(&invocation),
    }
}

fn run(invocation: &Invocation) -> Result<(), Failure> {
    let mut sink = Sink::open(invocation.output.as_deref())?;
    logs::prepare(&invocation.jobs)?;
    let harvest = engine::run(&invocation.jobs, invocation.journal.as_deref())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let put = sink.put(&report::report(&invocation.jobs, &harvest, now, invocation.bins));
    let logged = logs::write(&invocation.jobs, &harvest);
    let bad = harvest.outcomes.iter().map(|outcome| outcome.bad_blocks).sum();
    if let Ending::Signal(name) = harvest.ending {
        eprintln!("note: ended early by {name}; the result covers the time until then");
    }
    conclude(loaded(bad, harvest.ending), put.and(logged))
}

/// What the load itself says: that reads returned something else is worse than whatever else happened.
fn loaded(bad: u64, ending: Ending) -> Result<(), Failure> {
    let failed = match ending {
        Ending::Failed(failure) => Err(failure),
        Ending::Signal(_) | Ending::Complete => Ok(()),
    };
    if bad == 0 {
        return failed;
    }
    let data = Failure::Data(format!("{bad} reads did not return what was written (see findings in the result)"));
    Err(match failed {
        Err(failure) => data.and(&format!("then {failure}")),
        Ok(()) => data,
    })
}

/// What was found decides; that it could not be written down never hides it.
fn conclude(found: Result<(), Failure>, written: Result<(), Failure>) -> Result<(), Failure> {
    match (found, written) {
        (Err(worse), Err(failure)) => Err(worse.and(&failure.to_string())),
        (found, written) => found.and(written),
    }
}

fn check(invocation: &Invocation) -> Result<(), Failure> {
    let Some(journal) = &invocation.journal else {
        return Err(Failure::usage("verify needs --journal=FILE"));
    };
    let mut sink = Sink::open(invocation.output.as_deref())?;
    let report = verify::run(&invocation.jobs[0], journal)?;
    let put = sink.put(&report);
    let found = if report.ok {
        eprintln!("{}", report.sentence());
        Ok(())
    } else {
        Err(Failure::Data(report.sentence()))
    };
    conclude(found, put)
}

/// Where the result goes; opened before anything runs, so that a wrong path costs no run.
struct Sink {
    name: String,
    writer: Box<dyn Write>,
}

impl Sink {
    fn open(path: Option<&Path>) -> Result<Sink, Failure> {
        Ok(match path {
            None => Sink { name: "standard output".to_owned(), writer: Box::new(io::stdout()) },
            Some(path) => {
                let file = File::create(path).map_err(|error| {
                    Failure::usage(format!("cannot write the result to {}: {error}", path.display()))
                })?;
                Sink { name: path.display().to_string(), writer: Box::new(BufWriter::new(file)) }
            }
        })
    }

    fn put(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        let cannot = |error: &io::Error| system::failure(format!("cannot write the result to {}", self.name), error);
        serde_json::to_writer_pretty(&mut self.writer, value).map_err(|error| cannot(&error.into()))?;
        writeln!(self.writer).map_err(|error| cannot(&error))?;
        self.writer.flush().map_err(|error| cannot(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(result: Result<(), Failure>) -> (u8, String) {
        result.map_or_else(|failure| (failure.code(), failure.to_string()), |()| (0, String::new()))
    }

    #[test]
    fn lost_data_is_told_whatever_else_went_wrong() {
        let full = || Err(Failure::run("cannot write the log x: No space left on device"));
        let gone = || Ending::Failed(Failure::run("the server closed the connection"));
        let lost = "3 reads did not return what was written (see findings in the result)";
        assert_eq!(told(conclude(loaded(3, Ending::Complete), Ok(()))), (4, lost.to_owned()));
        let all =
            format!("{lost}; then the server closed the connection; cannot write the log x: No space left on device");
        assert_eq!(told(conclude(loaded(3, gone()), full())), (4, all));
        assert_eq!(told(conclude(loaded(3, Ending::Signal("SIGINT")), full())).0, 4);
    }

    #[test]
    fn a_failure_to_write_the_result_is_a_failure() {
        let full = || Err(Failure::run("full"));
        assert_eq!(told(conclude(loaded(0, Ending::Complete), full())), (1, "full".to_owned()));
        assert_eq!(
            told(conclude(loaded(0, Ending::Failed(Failure::run("gone"))), full())),
            (1, "gone; full".to_owned())
        );
        assert_eq!(told(conclude(loaded(0, Ending::Signal("SIGTERM")), Ok(()))), (0, String::new()));
    }
}
