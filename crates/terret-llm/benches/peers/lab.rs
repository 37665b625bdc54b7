//! Runs programs against the mock server, and measures them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// The server and the programs beside it.
pub(crate) struct Lab {
    folder: PathBuf,
    server: Child,
    address: String,
    pub(crate) rounds: usize,
}

/// What one run of a program took.
pub(crate) struct Run {
    /// User and system time of the process.
    pub(crate) cpu_us: f64,
    pub(crate) memory_mb: f64,
    /// From the start of the process to the first byte of a request at the server.
    pub(crate) first_byte_ms: f64,
}

impl Lab {
    pub(crate) fn new(mock: &Path, rounds: usize) -> Self {
        let mut server = Command::new(mock).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { folder: mock.parent().unwrap().into(), server, address: format!("127.0.0.1:{}", port.trim()), rounds }
    }

    /// The program that does this work without any library.
    pub(crate) fn floor(&self, work: &[&str], api: &str) -> Option<&'static str> {
        match (work[0], api) {
            ("agent", "chat") => Some("floorloop"),
            ("text" | "args", "anthropic" | "chat" | "responses") => Some("physlimit"),
            _ => None,
        }
    }

    /// Runs this program and those, in turns. A program that isn't there is left out.
    pub(crate) fn rounds(
        &self,
        api: &str,
        work: &[&str],
        programs: impl Iterator<Item = (&'static str, &'static str)>,
    ) -> Vec<HashMap<&'static str, Run>> {
        // The server takes Google's arguments for whole, so that there is nothing to compare.
        if (work[0], api) == ("args", "google") {
            return Vec::new();
        }
        let mut programs: Vec<(&str, PathBuf)> = programs.map(|(name, file)| (name, self.folder.join(file))).collect();
        programs.retain(|(_, file)| file.exists());
        programs.insert(0, ("terret", std::env::current_exe().unwrap()));
        let round = |_| programs.iter().map(|(name, file)| (*name, self.run(file, api, work))).collect();
        // The first round fills caches.
        (0..=self.rounds).map(round).skip(1).collect()
    }

    fn run(&self, program: &Path, api: &str, work: &[&str]) -> Run {
        let (scenario, times) = match work {
            ["conc", runs, turns, delay] => (format!("bench-tool-{turns}-d{delay}"), runs.parse().unwrap()),
            ["agent", turns] => (format!("bench-tool-{turns}"), 1),
            [kind, n] => (format!("bench-{kind}-{n}"), 1),
            _ => panic!("no such work: {work:?}"),
        };
        // The answer is ready before it is asked for.
        self.get(&format!("prebuild/{scenario}"));
        self.get("reset");
        let figures = std::env::temp_dir().join(format!("terret-peers-{}.json", std::process::id()));
        let mut command = Command::new(self.folder.join("measure"));
        command.args([figures.as_os_str(), "120".as_ref(), program.as_os_str()]).args(work);
        command.env("BASE", format!("http://{}", self.address)).env("API", api).env("LEVEL", "1");
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let expected = self.get(&format!("expect/{scenario}"));
        for (told, scripted) in [("text_chars", "text_chars"), ("content_bytes", "content_bytes"), ("sum", "sum")] {
            let scripted = expected[scripted].as_u64().map(|n| n * times);
            assert!(
                scripted.is_none_or(|scripted| answer[told].as_u64() == Some(scripted)),
                "{}: {told} is {} and not {scripted:?}",
                program.display(),
                answer[told]
            );
        }
        let measured: Value = serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap();
        std::fs::remove_file(figures).unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        let nanoseconds = |value: &Value| value.to_string().parse::<f64>().unwrap();
        Run {
            cpu_us: number(&measured["user_us"]) + number(&measured["sys_us"]),
            memory_mb: number(&measured["maxrss_kb"]) / 1024.0,
            first_byte_ms: (nanoseconds(&self.get("stats")["first_byte_ns"]) - nanoseconds(&measured["start_ns"]))
                / 1e6,
        }
    }

    /// Asks the server about itself.
    fn get(&self, what: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /__{what} HTTP/1.1\r\nhost: mock\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
