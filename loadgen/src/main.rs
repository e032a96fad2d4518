// SPDX-License-Identifier: Apache-2.0
//! The command: read what is asked, do it, print one sentence when it went wrong.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use virtune_load::args::{self, Invocation, Request};
use virtune_load::engine::{self, Ending};
use virtune_load::failure::Failure;
use virtune_load::{logs, report, verify};

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
        Request::Say(text) => writeln!(io::stdout(), "{text}").map_err(|error| Failure::io("cannot print", &error)),
        Request::Run(invocation) => run(&invocation),
        Request::Verify(invocation) => check(&invocation),
    }
}

fn run(invocation: &Invocation) -> Result<(), Failure> {
    let mut sink = Sink::open(invocation.output.as_deref())?;
    let harvest = engine::run(&invocation.jobs, invocation.journal.as_deref())?;
    sink.put(&report::report(&invocation.jobs, &harvest, invocation.bins))?;
    logs::write(&invocation.jobs, &harvest)?;
    let bad: u64 = harvest.outcomes.iter().map(|outcome| outcome.bad_blocks).sum();
    if bad > 0 {
        // whatever else happened, this is worse
        let mut message = format!("{bad} reads did not return what was written (see findings in the result)");
        if let Ending::Failed(failure) = harvest.ending {
            message += &format!("; then {failure}");
        }
        return Err(Failure::Data(message));
    }
    match harvest.ending {
        Ending::Failed(failure) => Err(failure),
        Ending::Signal(name) => {
            eprintln!("note: ended early by {name}; the result covers the time until then");
            Ok(())
        }
        Ending::Complete => Ok(()),
    }
}

fn check(invocation: &Invocation) -> Result<(), Failure> {
    let Some(journal) = &invocation.journal else {
        return Err(Failure::usage("verify needs --journal=FILE"));
    };
    let mut sink = Sink::open(invocation.output.as_deref())?;
    let report = verify::run(&invocation.jobs[0], journal)?;
    sink.put(&report)?;
    if report.ok {
        eprintln!("{}", report.sentence());
        Ok(())
    } else {
        Err(Failure::Data(report.sentence()))
    }
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
        let cannot = |error: &io::Error| Failure::io(format!("cannot write the result to {}", self.name), error);
        serde_json::to_writer_pretty(&mut self.writer, value).map_err(|error| cannot(&error.into()))?;
        writeln!(self.writer).map_err(|error| cannot(&error))?;
        self.writer.flush().map_err(|error| cannot(&error))
    }
}
