//! What the walls are made of, as seen from inside, and what becomes of those who lean on them.

use serde_json::json;
use terret_agent::ToolContext;
use terret_tools::{Ladder, Level};

use super::{Arena, control_and_levels, levels};

/// The fields of `/proc/self/status` of a command.
async fn status(arena: &Arena, field: &str) -> String {
    let answer = arena.run(&format!("grep ^{field}: /proc/self/status | cut -f2")).await;
    answer.text
}

#[tokio::test]
async fn commands_have_no_capabilities_and_never_gain_any() {
    for level in levels() {
        let arena = Arena::new(Some(level));
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status(&arena, set).await, "0000000000000000", "{set} on {level}");
        }
        assert_eq!(status(&arena, "NoNewPrivs").await, "1", "on {level}");
        assert_eq!(status(&arena, "Seccomp").await, "2", "on {level}");
        // Nobody becomes another user by a program that has the right to.
        let user = arena.run("id -u; (su root -c 'id -u' || sudo -n id -u) </dev/null 2>/dev/null; true").await;
        assert_eq!(user.text.lines().count(), if user.text.starts_with("0") { user.text.lines().count() } else { 1 });
    }
}

#[tokio::test]
async fn new_namespaces_and_mounts_are_refused() {
    let attacks = ["unshare -U true", "unshare -n true", "unshare -m true", "mount -t tmpfs none .", "chroot / true"];
    for level in levels() {
        for command in attacks {
            let answer = Arena::new(Some(level)).run(command).await;
            assert!(answer.is_error, "{command} on {level}");
        }
    }
    let control = Arena::new(None).run("unshare -U true").await;
    if control.is_error {
        skipped!("the control: this system itself refuses namespaces ({})", control.text);
    }
}

#[tokio::test]
async fn what_this_program_has_open_is_not_inherited() {
    use std::os::fd::AsRawFd as _;
    for level in levels() {
        let arena = Arena::new(Some(level)).file("../outside/file", "secret");
        let file = std::fs::File::open(arena.path("outside/file")).unwrap();
        let directory = std::fs::File::open(arena.path("outside")).unwrap();
        // As a shell leaves them that was told `3</path`.
        for inherited in [&file, &directory] {
            rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty()).unwrap();
        }
        let (file, directory) = (file.as_raw_fd(), directory.as_raw_fd());
        let answer = arena.run(&format!("cat <&{file}; cat /proc/self/fd/{directory}/file; ls /proc/self/fd")).await;
        assert!(!answer.text.contains("secret"), "on {level}: {}", answer.text);
        let open = answer.text.lines().filter(|line| line.parse::<u32>().is_ok());
        assert_eq!(open.collect::<Vec<_>>(), ["0", "1", "2", "3"], "on {level}: {}", answer.text);
    }
}

#[tokio::test]
async fn settings_of_the_kernel_stay_as_they_are() {
    let settings = ["kernel/core_pattern", "vm/swappiness", "kernel/pid_max"];
    for level in control_and_levels() {
        for setting in settings {
            // Writes what is there already.
            let answer =
                Arena::new(level).run(&format!("cat /proc/sys/{setting} > s && cat s > /proc/sys/{setting}")).await;
            if level.is_none() && answer.is_error {
                skipped!("the control: {setting} can't be written here anyway");
            }
            assert!(answer.is_error || level.is_none(), "{setting} on {level:?}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn programs_outside_are_not_hampered() {
    let mut victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let id = victim.id();
    let attacks =
        [format!("prlimit --pid {id} --nofile=64:64"), format!("taskset -p 1 {id}"), format!("renice 19 {id}")];
    for level in control_and_levels() {
        for command in &attacks {
            let answer = Arena::new(level).run(command).await;
            assert_eq!(answer.is_error, level.is_some(), "{command} on {level:?}: {}", answer.text);
        }
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[tokio::test]
async fn terminals_of_others_are_out_of_reach() {
    use std::os::fd::AsFd as _;
    let controller = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(controller.as_fd()).unwrap();
    rustix::pty::unlockpt(controller.as_fd()).unwrap();
    let terminal = rustix::pty::ptsname(controller.as_fd(), Vec::new()).unwrap().into_string().unwrap();
    for level in control_and_levels() {
        let answer = Arena::new(level).run(&format!("echo evil > {terminal}")).await;
        assert_eq!(answer.is_error, level.is_some(), "on {level:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn programs_outside_get_no_signals() {
    let mut victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    for level in control_and_levels() {
        let answer = Arena::new(level).run(&format!("kill -0 {} && echo reached", victim.id())).await;
        let rungs = Ladder::probe().rungs;
        let mut gaps = rungs.iter().filter(|rung| Some(rung.level) == level).flat_map(|rung| &rung.gaps);
        let gap = gaps.any(|gap| gap.contains("signals"));
        if gap {
            skipped!("on {level:?}: this kernel can't");
            continue;
        }
        assert_eq!(answer.text.starts_with("reached"), level.is_none(), "on {level:?}: {}", answer.text);
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[tokio::test]
async fn temporary_files_of_others_are_out_of_sight() {
    let file = tempfile::Builder::new().prefix("terret-secret-").tempfile_in("/tmp").unwrap();
    std::fs::write(file.path(), "secret").unwrap();
    for level in control_and_levels() {
        let answer = Arena::new(level).run(&format!("cat {}", file.path().display())).await;
        assert_eq!(answer.text == "secret", level.is_none(), "on {level:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_command_is_limited_in_what_it_uses_up() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, options, _| {
            options.limits.file_size = Some(1 << 20);
            options.limits.memory = Some(1 << 30);
            options.limits.cpu_time = Some(1);
            workspace
        });
        let answer = arena.run("head -c 3000000 /dev/zero > big; stat -c %s big").await;
        assert!(answer.text.ends_with("1048576"), "on {level}: {}", answer.text);
        let answer = arena.run("perl -e '$x = \"x\" x 2_000_000_000; print length $x'").await;
        assert!(answer.is_error && !answer.text.contains("2000000000"), "on {level}: {}", answer.text);
        let answer = arena.run("while :; do :; done").await;
        assert!(answer.is_error, "on {level}: {}", answer.text);
        assert_eq!(arena.run("ulimit -c").await.text, "0", "on {level}");
    }
}

#[tokio::test]
async fn a_flood_is_bounded_and_what_it_writes_is_clean() {
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    for level in levels() {
        let arena = Arena::new(Some(level));
        let before = memory();
        let floods = [
            r"head -c 300000000 /dev/zero | tr '\0' x",
            "yes | head -n 10000000",
            r"yes $'\e]52;c;ZXZpbA==\a\e[6n\e]0;title\a\u202e\x9b31m' | head -n 100000",
        ];
        for flood in floods {
            let answer = arena.run(flood).await;
            assert!(answer.text.len() < 53_000, "on {level}: {}", answer.text.len());
            let live = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
            assert!(!answer.text.contains(live), "on {level}");
        }
        assert!(memory() < before + 100_000, "on {level}: {} kB before, {} kB after", before, memory());
    }
}

#[tokio::test]
async fn where_no_level_is_forced_the_best_one_that_holds_is_taken_and_recorded() {
    let best = Ladder::best().unwrap();
    assert_eq!(best, levels()[0]);
    let project = crate::project::Project::new();
    let answer = project.call_with("bash", json!({"command": "true"}), ToolContext::detached("call")).await;
    assert_eq!(answer.details["sandbox"], best.name());
}

/// The filter of a container: no namespaces, and no Landlock if `landlock` says so.
fn in_a_container<T: Send + 'static>(landlock: bool, inside: impl FnOnce() -> T + Send + 'static) -> T {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
    let new_user = libc::CLONE_NEWUSER as u64;
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(new_user), new_user);
    let mut rules = std::collections::BTreeMap::from([
        (libc::SYS_unshare, vec![]),
        (libc::SYS_mount, vec![]),
        (libc::SYS_clone, vec![SeccompRule::new(vec![condition.unwrap()]).unwrap()]),
    ]);
    if !landlock {
        rules.insert(libc::SYS_landlock_create_ruleset, vec![]);
    }
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(1), arch).unwrap();
    let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
    let thread = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        seccompiler::apply_filter(&filter).unwrap();
        inside()
    });
    thread.join().unwrap()
}

#[test]
fn in_a_container_that_refuses_namespaces_the_second_level_holds() {
    let ladder = in_a_container(true, Ladder::probe);
    let [bubblewrap, landlock] = &ladder.rungs[..] else { panic!("{ladder}") };
    assert!(bubblewrap.holds.is_err(), "{ladder}");
    assert_eq!(landlock.holds.is_ok(), levels().contains(&Level::Landlock), "{ladder}");
}

#[test]
fn where_nothing_holds_the_reasons_are_told_and_commands_are_refused() {
    let program = std::env::current_exe().unwrap();
    // A process of its own, because the best level is found out once.
    let output = in_a_container(false, move || {
        let arguments = ["--exact", "sandbox::walls::commands_are_refused_without_walls", "--ignored", "--nocapture"];
        std::process::Command::new(program).args(arguments).output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Not a test by itself: it is run by the one before, where nothing holds.
#[tokio::test]
#[ignore = "needs a system without a sandbox"]
async fn commands_are_refused_without_walls() {
    let project = crate::project::Project::new();
    let error = project.error("bash", json!({"command": "touch made"})).await;
    assert!(error.contains("no sandbox works on this machine"), "{error}");
    assert!(error.contains("bubblewrap: ") && error.contains("landlock: "), "{error}");
    assert!(!project.path("made").exists());
    let arena = Arena::new(None);
    assert!(!arena.run("touch made").await.is_error, "unless it is wanted in words");
}
