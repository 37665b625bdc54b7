//! `terret completions`, `terret man`, `terret resume`: other ways into the same command line.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::terret::Terret;

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Terret::new().args(["completions", shell]).run().exits(0).stdout;
        for part in ["terret", "sessions", "max-turns"] {
            assert!(script.contains(part), "{shell} {part}");
        }
        // Those that are here, and can look without running, can read it.
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, &script).unwrap();
        if let (true, Ok(read)) =
            (["bash", "zsh", "fish"].contains(&shell), Command::new(shell).arg("-n").arg(file.path()).output())
        {
            assert!(read.status.success(), "{shell}: {}", String::from_utf8_lossy(&read.stderr));
        }
    }
    let script = Terret::new().args(["completions", "bash"]).run().exits(0).stdout;
    let asked = format!(
        "{script}\nCOMP_WORDS=(terret --max-t); COMP_CWORD=1; _terret terret --max-t terret; echo ${{COMPREPLY[@]}}"
    );
    let output = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--max-turns\n", "{}", String::from_utf8_lossy(&output.stderr));
    Terret::new().args(["completions", "tcsh"]).run().exits(2);
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let page = Terret::new().args(["man"]).run().exits(0).stdout;
    assert!(page.contains(".TH terret 1") && page.contains("\\-\\-max\\-turns"), "{page}");
    let ran = Terret::new().args(["man", "pages/man1"]).run().exits(0);
    for page in ["terret.1", "terret-run.1", "terret-sessions.1", "terret-sessions-export.1", "terret-config-explain.1"]
    {
        assert!(ran.path("pages/man1").join(page).is_file(), "{page}");
    }
    let ran = Terret::new().file("taken", "").args(["man", "taken"]).run().exits(1);
    assert!(ran.stderr.contains("taken: can't be written"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(ran.path("taken")).unwrap(), "");
}

#[test]
fn resume_goes_on_with_a_session() {
    let ran = Terret::scripted([json!({"text": "One."})]).args(["-o", "json"]).run().exits(0);
    let id = ran.session().to_string();
    let resume = |args: &[&str]| ran.then().args(["resume"]).args(args).script([json!({"text": "Two."})]);
    let again = resume(&[&id, "And now?"]).args(["-o", "json"]).run().exits(0);
    assert_eq!(again.session().to_string(), id);
    assert_eq!(again.sessions().list().unwrap()[0].messages, 4);
    // Settings hold here as well.
    let again = resume(&[&id, "And now?"]).config("output-format = 'json'\nno-session = true\n").run().exits(0);
    assert_eq!(again.session().to_string(), id);
    assert_eq!(again.sessions().list().unwrap()[0].messages, 6);

    let asked = resume(&[]).run().exits(2);
    assert!(asked.stderr.contains("terret sessions list"), "{}", asked.stderr);
    let both = resume(&[&id, "x", "-c"]).run().exits(2);
    assert!(both.stderr.contains("leave out -c, -r and --no-session"), "{}", both.stderr);
}
