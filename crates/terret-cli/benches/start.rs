//! What it takes to get a question to a server: from the start of the program to the first byte of its request, the CPU of
//! the whole run, and its memory, beside a program in C that does nothing else, and beside other agents.
//!
//! `TERRET_MOCK_LLM` is the path of the server, with `measure`, which runs a program and says what it took, in the same
//! folder; without it there is nothing to measure. `TERRET_PROGRAMS` is a file of other agents, a line each: a name, a
//! tab, and a shell command that asks the model `bench-text-20` at `$BASE`. All are run in turns. Cold is after the
//! system's caches were dropped, which needs root, and is left out without it.
//!
//! `TERRET_MOCK_LLM=…/mock cargo bench --profile dist -p terret-cli --bench start`; `ROUNDS` is the number of rounds.

#![allow(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const ROUNDS: usize = 15;

fn main() {
    let Some(mock) = std::env::var_os("TERRET_MOCK_LLM") else {
        return println!("TERRET_MOCK_LLM is not set: no server to measure against");
    };
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let home = tempfile::tempdir().unwrap();
    let lab = Lab::new(mock.as_ref(), home.path());
    let programs = programs(home.path());
    println!("| | to the first byte, ms | CPU, ms | most memory, MB |\n|---|---:|---:|---:|");
    for (title, cold, rounds) in [("warm", false, rounds), ("cold", true, rounds.min(5))] {
        if cold && drop_caches().is_err() {
            println!("| cold: needs root | | | |");
            continue;
        }
        // In turns, so that what else the machine does falls on all of them. The first round fills caches.
        let taken: Vec<Vec<Took>> = (0..=rounds)
            .map(|_| programs.iter().map(|(_, command)| lab.run(command, cold)).collect())
            .skip(usize::from(!cold))
            .collect();
        println!("| **{title}** | | | |");
        for (n, (name, _)) in programs.iter().enumerate() {
            let middle = |measure: fn(&Took) -> f64| {
                let mut values: Vec<f64> = taken.iter().map(|round| measure(&round[n])).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let (first, cpu, memory) =
                (middle(|it| it.first_byte_ms), middle(|it| it.cpu_ms), middle(|it| it.memory_mb));
            println!("| {name} | {first:.1} | {cpu:.1} | {memory:.1} |");
        }
    }
}

/// The programs by their names, as shell commands.
fn programs(home: &Path) -> Vec<(String, String)> {
    let terret = env!("CARGO_BIN_EXE_terret");
    let ask = "-p hi --model custom/bench-text-20 --base-url $BASE/v1";
    let mut programs = Vec::new();
    if let Some(minimal) = in_c(home) {
        programs.push(("a program in C".to_owned(), format!("exec {} $PORT", minimal.display())));
    }
    programs.push((
        "terret --permission-mode read-only".to_owned(),
        format!("exec {terret} {ask} --permission-mode read-only"),
    ));
    programs.push(("**terret**".to_owned(), format!("exec {terret} {ask}")));
    let others = std::env::var_os("TERRET_PROGRAMS").map(|file| fs::read_to_string(file).unwrap()).unwrap_or_default();
    programs.extend(
        others.lines().filter_map(|line| line.split_once('\t')).map(|(name, command)| (name.into(), command.into())),
    );
    programs
}

/// What nothing can do without: a connection, a request, and an answer that is read to its end.
const MINIMAL: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&at, sizeof at)) return 1;
    const char *body = "{\"model\":\"bench-text-20\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    char request[1024], answer[65536];
    int n = snprintf(request, sizeof request, "POST /v1/chat/completions HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n"
        "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(body), body);
    if (write(s, request, n) != n) return 1;
    // The server may keep the connection; the end of the answer says enough.
    for (size_t have = 0; have < sizeof answer; have += n) {
        n = read(s, answer + have, sizeof answer - have);
        if (n <= 0 || memmem(answer, have + n, "[DONE]", 6)) return n < 0;
    }
}
"#;

fn in_c(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("minimal.c"), folder.join("minimal"));
    fs::write(&source, format!("#define _GNU_SOURCE\n{MINIMAL}")).unwrap();
    let compiled = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&source).status();
    compiled.is_ok_and(|status| status.success()).then_some(program)
}

fn drop_caches() -> std::io::Result<()> {
    Command::new("sync").status()?;
    fs::write("/proc/sys/vm/drop_caches", "3")
}

struct Took {
    first_byte_ms: f64,
    /// Of the program and of what it has started and waited for.
    cpu_ms: f64,
    memory_mb: f64,
}

/// The server, and a home in which the programs run.
struct Lab<'a> {
    measure: PathBuf,
    server: Child,
    port: String,
    home: &'a Path,
}

impl<'a> Lab<'a> {
    fn new(mock: &Path, home: &'a Path) -> Self {
        let mut server = Command::new(mock).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let measure = mock.parent().unwrap().join("measure");
        Self { measure, server, port: port.trim().to_owned(), home }
    }

    fn run(&self, command: &str, cold: bool) -> Took {
        self.get("prebuild/bench-text-20");
        self.get("reset");
        if cold {
            drop_caches().unwrap();
        }
        let (figures, project) = (self.home.join("figures.json"), self.home.join("project"));
        fs::create_dir_all(&project).unwrap();
        let ran = Command::new(&self.measure)
            .args([figures.as_os_str(), "60".as_ref(), "sh".as_ref(), "-c".as_ref(), command.as_ref()])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home)
            .env("BASE", format!("http://127.0.0.1:{}", self.port))
            .env("PORT", &self.port)
            .current_dir(project)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let measured: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
        let stats = self.get("stats");
        assert!(
            measured["rc"] == 0 && stats["llm_requests"] != 0,
            "{command}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let number = |value: &Value| value.to_string().parse::<f64>().unwrap();
        Took {
            first_byte_ms: (number(&stats["first_llm_byte_ns"]) - number(&measured["start_ns"])) / 1e6,
            cpu_ms: (number(&measured["user_us"]) + number(&measured["sys_us"])) / 1e3,
            memory_mb: number(&measured["maxrss_kb"]) / 1024.0,
        }
    }

    /// Asks the server about itself.
    fn get(&self, what: &str) -> Value {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        write!(stream, "GET /__{what} HTTP/1.1\r\nhost: mock\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().to_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap_or_default()
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
