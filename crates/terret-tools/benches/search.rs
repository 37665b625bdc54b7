//! `grep` and `find` against ripgrep, on a tree of 50,000 files.
//!
//! Ours answer sorted, in this process. They are measured in turns with `rg`, which is parallel and doesn't sort, and with
//! `rg --sort path`, which sorts and has one thread; both as processes whose output is read. Where our tool stops at its
//! limit, the reader of `rg` closes the pipe after as many lines. What the start of a process costs is a row of its own.
//!
//! `cargo bench -p terret-tools --bench search`; `TERRET_RG` names another `rg` than that on the `PATH`.

#![allow(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

mod cost;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terret_agent::{FnTool, Tool as _, ToolContext};
use terret_tools::{Workspace, find, grep, ls};

use self::cost::{Cost, median};

const FILES: usize = 50_000;
const ROUNDS: usize = 9;

/// What both are asked.
struct Question {
    name: &'static str,
    tool: &'static str,
    arguments: Value,
    rg: &'static [&'static str],
    /// The lines after which ours stops. Without it, what both find is compared.
    lines: Option<usize>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes = plant(folder.path());
    let workspace = Workspace::new(folder.path()).unwrap();
    let (grep, find) = (grep(&workspace), find(&workspace));
    println!("{FILES} files, {} MB", bytes / 1_000_000);

    let rg = std::env::var_os("TERRET_RG").unwrap_or_else(|| "rg".into());
    let rg = Path::new(&rg);
    match Command::new(rg).arg("--version").output() {
        Ok(version) => println!("{}", String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or_default()),
        Err(error) => println!(
            "SKIPPED: the comparison needs ripgrep, and {} can't be run ({error}). Install it, or name it in TERRET_RG.",
            rg.display()
        ),
    }
    let has_rg = Command::new(rg).arg("--version").output().is_ok();

    println!(
        "{:<36} {:>15} {:>15} {:>15}   {:>13} {:>13}",
        "ms wall / CPU", "ours", "rg", "rg sorted", "to rg", "to rg sorted"
    );
    if has_rg {
        let start: Vec<Cost> =
            (0..ROUNDS).map(|_| Cost::of(|| run(rg, &["--version"], folder.path(), None).len()).1).collect();
        println!("{:<36} {:>15} {:>15}", "the start of a process", "", shown(&start));
    }
    for question in questions() {
        let tool = if question.tool == "grep" { &grep } else { &find };
        compare(&runtime, tool, &question, has_rg.then_some(rg), folder.path());
    }
    cancel(&runtime, &grep);
    list(&runtime);
}

fn questions() -> Vec<Question> {
    let grep = |name, arguments, rg, lines| Question { name, tool: "grep", arguments, rg, lines };
    let find = |name, arguments, rg, lines| Question { name, tool: "find", arguments, rg, lines };
    vec![
        grep("grep: rare literal", json!({"pattern": "needle_here"}), &["-n", "needle_here"], None),
        grep("grep: no match", json!({"pattern": "nowhere_at_all"}), &["-n", "nowhere_at_all"], None),
        grep("grep: frequent, stops at 100", json!({"pattern": "the"}), &["-n", "the"], Some(100)),
        grep(
            "grep: regex with a literal",
            json!({"pattern": r"fn \w+_here\(\d+\)"}),
            &["-n", r"fn \w+_here\(\d+\)"],
            None,
        ),
        grep(
            "grep: regex without a literal",
            json!({"pattern": r"[A-Z]{3}[0-9]{5}[x-z]"}),
            &["-n", r"[A-Z]{3}[0-9]{5}[x-z]"],
            None,
        ),
        grep(
            "grep: regex with anchors",
            json!({"pattern": r"^\s+fn needle.*\}$"}),
            &["-n", r"^\s+fn needle.*\}$"],
            None,
        ),
        grep(
            "grep: ignoring case",
            json!({"pattern": "NEEDLE_HERE", "ignore_case": true}),
            &["-n", "-i", "NEEDLE_HERE"],
            None,
        ),
        grep(
            "grep: in *.rs",
            json!({"pattern": "needle_here", "glob": "*.rs"}),
            &["-n", "-g", "*.rs", "needle_here"],
            None,
        ),
        find("find: rare name", json!({"pattern": "needle*.rs"}), &["--files", "-g", "needle*.rs"], None),
        find("find: *.rs, stops at 1000", json!({"pattern": "*.rs"}), &["--files", "-g", "*.rs"], Some(1_000)),
        find("find: everything, stops at 1000", json!({"pattern": "*"}), &["--files"], Some(1_000)),
    ]
}

fn compare(runtime: &tokio::runtime::Runtime, tool: &FnTool, question: &Question, rg: Option<&Path>, root: &Path) {
    let (mut ours, mut plain, mut sorted) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 2 {
        let (answer, cost) = Cost::of(|| runtime.block_on(call(tool, &question.arguments)));
        // The first ones fill caches.
        if round >= 2 {
            ours.push(cost);
        }
        let Some(rg) = rg else { continue };
        let (lines, cost) = Cost::of(|| run(rg, question.rg, root, question.lines));
        if round >= 2 {
            plain.push(cost);
        }
        let with_order: Vec<&str> = ["--sort", "path"].iter().chain(question.rg).copied().collect();
        let (_, cost) = Cost::of(|| run(rg, &with_order, root, question.lines));
        if round >= 2 {
            sorted.push(cost);
        }
        if question.lines.is_none() {
            assert_eq!(names(&answer, question.tool), names(&lines, question.tool), "{}", question.name);
        }
    }
    print!("{:<36} {:>15}", question.name, shown(&ours));
    if rg.is_some() {
        print!(" {:>15} {:>15}", shown(&plain), shown(&sorted));
        print!("   {:>13} {:>13}", ratio(&ours, &plain), ratio(&ours, &sorted));
    }
    println!();
}

async fn call(tool: &FnTool, arguments: &Value) -> String {
    let output = tool.call(arguments.clone(), ToolContext::detached("call")).await.unwrap();
    output.content.iter().filter_map(|content| content.as_text()).collect()
}

/// What a search by rg writes, up to some lines.
fn run(rg: &Path, arguments: &[&str], root: &Path, lines: Option<usize>) -> String {
    let mut command = Command::new(rg);
    command.args(["--no-config", "--hidden", "--no-require-git"]).args(arguments);
    if arguments[0] != "--version" {
        command.arg("./");
    }
    let mut rg = command.current_dir(root).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut text = String::new();
    let output = BufReader::new(rg.stdout.take().unwrap());
    for line in output.lines().take(lines.unwrap_or(usize::MAX)) {
        writeln!(text, "{}", line.unwrap()).unwrap();
    }
    rg.wait().unwrap();
    text
}

/// The places that an answer names: files, and lines in them.
fn names(answer: &str, tool: &str) -> BTreeSet<String> {
    let place = |line: &str| match tool {
        "grep" => line.splitn(3, ':').take(2).collect::<Vec<_>>().join(":"),
        _ => line.to_owned(),
    };
    let lines = answer.lines().filter(|line| !line.starts_with("No match"));
    lines.map(|line| place(line.strip_prefix("./").unwrap_or(line))).collect()
}

/// How soon a search has ended that is cancelled, and how much is done after that.
fn cancel(runtime: &tokio::runtime::Runtime, grep: &FnTool) {
    let (mut returned, mut after) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let context = ToolContext::detached("call");
        let token = context.cancel.clone();
        let at = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
            Instant::now()
        });
        let arguments = json!({"pattern": r"[A-Z]{3}[0-9]{5}[x-z]"});
        assert!(runtime.block_on(grep.call(arguments, context)).is_err());
        let now = Instant::now();
        returned.push((now - at.join().unwrap()).as_secs_f64() * 1e3);
        let ((), cost) = Cost::of(|| std::thread::sleep(Duration::from_millis(200)));
        after.push(cost.cpu);
    }
    println!(
        "cancelled after 20 ms: returns {:.2} ms later, and uses {:.2} ms CPU after that",
        median(returned),
        median(after)
    );
}

/// A directory of 200,000 files, against `ls`, which sorts them, too.
fn list(runtime: &tokio::runtime::Runtime) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    (0..200_000).for_each(|number| drop(std::fs::File::create(folder.path().join(format!("file_{number}"))).unwrap()));
    let tool = ls(&Workspace::new(folder.path()).unwrap());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(Cost::of(|| runtime.block_on(call(&tool, &json!({})))).1);
        let mut program = Command::new("ls");
        program.args(["-A", "-p"]).env("LC_ALL", "C").current_dir(folder.path()).stdin(Stdio::null());
        theirs.push(Cost::of(|| program.output().unwrap()).1);
    }
    println!("ls of 200,000 files: {}, and ls -Ap {}: {}", shown(&ours), shown(&theirs), ratio(&ours, &theirs));
}

fn shown(costs: &[Cost]) -> String {
    let of = |part: fn(&Cost) -> f64| median(costs.iter().map(part).collect());
    format!("{:.1} / {:.1}", of(|cost| cost.wall), of(|cost| cost.cpu))
}

/// The medians of the ratios in a round.
fn ratio(ours: &[Cost], theirs: &[Cost]) -> String {
    let of = |part: fn(&Cost) -> f64| {
        median(ours.iter().zip(theirs).map(|(ours, theirs)| part(ours) / part(theirs)).collect())
    };
    format!("{:.2} / {:.2}", of(|cost| cost.wall), of(|cost| cost.cpu))
}

/// A tree as projects have it: nested directories, sources of several kinds and sizes, binaries, and ignored files,
/// by rules at several depths. Returns the bytes in it.
fn plant(root: &Path) -> usize {
    let mut random = fastrand::Rng::with_seed(7);
    let words: Vec<String> = (0..2_000)
        .map(|_| (0..random.usize(2..11)).map(|_| random.lowercase()).collect())
        .chain(["the", "fn", "let", "self", "return", "struct"].map(str::to_owned))
        .collect();
    std::fs::write(root.join(".gitignore"), "target/\n*.log\nnode_modules\n/generated\n").unwrap();
    let mut bytes = 0;
    let per_folder = 25;
    for folder in 0..FILES / per_folder {
        let parts = [
            ["src", "lib", "app", "test", "docs", "tools", "core", "web"][folder % 8].to_owned(),
            format!("m{}", folder / 8 % 12),
            format!("p{}", folder / 96 % 7),
            if folder % 20 == 19 { "target".to_owned() } else { format!("d{folder}") },
            format!("x{}", folder % 3),
        ];
        let path = root.join(parts[..if folder % 3 == 0 { 4 } else { 5 }].join("/"));
        std::fs::create_dir_all(&path).unwrap();
        let mut left = per_folder;
        if folder % 10 == 0 {
            std::fs::write(path.join(".gitignore"), "*.tmp\n!keep.tmp\nbuild/\n").unwrap();
            left -= 1;
        }
        for file in 0..left {
            let size = match random.u8(0..100) {
                0..60 => random.usize(200..4_000),
                60..92 => random.usize(4_000..16_000),
                92..99 => random.usize(16_000..64_000),
                _ => random.usize(64_000..400_000),
            };
            let ending = ["rs", "rs", "rs", "ts", "py", "md", "json", "toml", "log", "tmp", "png"][random.usize(0..11)];
            let stem = if random.usize(0..2_000) == 0 { "needle" } else { &words[random.usize(0..words.len())] };
            let mut content = text(size, &words, &mut random);
            if ending == "png" {
                content.insert_str(random.usize(0..100), "\0\u{1}");
            } else if random.usize(0..2_000) == 0 {
                content.push_str("fn needle_here(42) {}\n");
            }
            bytes += content.len();
            std::fs::write(path.join(format!("{stem}_{file}.{ending}")), content).unwrap();
        }
    }
    bytes
}

fn text(size: usize, words: &[String], random: &mut fastrand::Rng) -> String {
    let mut text = String::with_capacity(size + 100);
    while text.len() < size {
        text.push_str(&" ".repeat(4 * random.usize(0..4)));
        for _ in 0..random.usize(1..12) {
            text.push_str(&words[random.usize(0..words.len())]);
            text.push([' ', ' ', ' ', '_', '(', '.'][random.usize(0..6)]);
        }
        text.push('\n');
    }
    text
}
