//! All of it once more, as somebody who isn't root.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

/// `nobody`, on every Linux.
const NOBODY: u32 = 65_534;

#[test]
fn the_sandbox_holds_for_an_ordinary_user_as_it_does_for_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::Builder::new().prefix("terret-user-").tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    let program = place.join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["home", "tmp"] {
        std::fs::create_dir(place.join(name)).unwrap();
        chown(place.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let user = NOBODY.to_string();
    let tests = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .arg(&program)
        .args(["sandbox::", "grep::what_may_not_be_read_is_told", "--test-threads", "2"])
        .current_dir(&place)
        .env("HOME", place.join("home"))
        .env("TMPDIR", place.join("tmp"))
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env_remove("CARGO_HOME")
        .env_remove("RUSTUP_HOME")
        .output();
    let tests = match tests {
        Ok(tests) => tests,
        Err(error) => {
            skipped!("setpriv can't be run: {error}");
            return;
        }
    };
    let complaints = String::from_utf8_lossy(&tests.stderr);
    for line in complaints.lines().filter(|line| line.starts_with("SKIPPED")) {
        skipped!("as an ordinary user: {line}");
    }
    let said = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{said}\n{complaints}");
    for name in ["nothing_outside_the_workspace_is_changed", "what_may_not_be_read_is_told"] {
        assert!(said.contains(&format!("{name} ... ok")), "{said}");
    }
}
