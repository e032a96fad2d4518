// SPDX-License-Identifier: Apache-2.0
//! What the tests on real programs share: a storage daemon, the generator, and their clean end.
#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Whether a program is there; prints why a test is skipped when it is not.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// A storage daemon that exports the node `top` to a socket. Killed when dropped.
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Start it with these `--blockdev` and `--object` options, and wait for its socket.
    pub fn start(options: &[&str], queues: u32) -> Daemon {
        Daemon::export(options, queues, "writable=on")
    }

    /// The same, with another word for `writable`.
    pub fn export(options: &[&str], queues: u32, writable: &str) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let export = format!(
            "type=vhost-user-blk,id=e,node-name=top,addr.type=unix,addr.path={},num-queues={queues},{writable},iothread=io",
            socket.display()
        );
        let mut child = Command::new("qemu-storage-daemon")
            .args(["--object", "iothread,id=io"])
            .args(options)
            .args(["--export", &export])
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !listens(&socket) {
            assert!(start.elapsed() < Duration::from_secs(20), "the daemon opened no socket");
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the daemon ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Daemon { child, socket, _folder: folder }
    }

    /// The words that lead to it.
    pub fn words(&self) -> [String; 2] {
        ["ioengine=virtio-blk-vhost-user".to_owned(), format!("filename={}", self.socket.display())]
    }

    /// End it as a power cut would end a host: SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a socket takes connections: its file is there a moment before. The daemon serves one client at a time, so
/// the kernel is asked, and not the daemon.
fn listens(socket: &Path) -> bool {
    let (sockets, path) = (std::fs::read_to_string("/proc/net/unix").unwrap(), socket.display().to_string());
    sockets.lines().any(|line| line.ends_with(&path) && line.split_whitespace().nth(3) == Some("00010000"))
}

/// Null-co with real read buffers, of 1 GiB.
pub const NULL: [&str; 2] = ["--blockdev", "driver=null-co,node-name=top,size=1073741824,read-zeroes=off"];

/// A folder on a file system that takes O_DIRECT.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of zeros that has all its blocks.
pub fn disk(folder: &Path, mebibytes: usize) -> PathBuf {
    let path = folder.join("disk.raw");
    std::fs::write(&path, vec![0u8; mebibytes << 20]).unwrap();
    path
}

/// The generator, not yet started.
pub fn generator() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_virtune-load"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Run the generator to its end.
pub fn run(words: &[impl AsRef<str>], more: &str) -> Output {
    generator().args(words.iter().map(AsRef::as_ref)).args(more.split_whitespace()).output().unwrap()
}

/// Run the generator, expect exit 0, and return its result.
pub fn load(words: &[impl AsRef<str>], more: &str) -> Value {
    let output = run(words, more);
    assert!(output.status.success(), "{}: {}", more, String::from_utf8_lossy(&output.stderr));
    result(&output)
}

/// The result on the generator's standard output.
pub fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}

/// Run the generator, expect a mistake, and return its sentence.
pub fn told(code: i32, words: &[impl AsRef<str>], more: &str) -> String {
    let output = run(words, more);
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{more}: {sentence}");
    assert_eq!(sentence.lines().count(), 1, "one sentence: {sentence}");
    sentence.trim_end().strip_prefix("error: ").unwrap().to_owned()
}
