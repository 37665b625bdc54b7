use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{CommandLine, SandboxError, View};

/// A profile for `sandbox-exec`, which is a part of macOS.
///
/// Of the rules that match an operation, the last one counts. Paths are those without links, so that `/tmp` is
/// `/private/tmp`; a [`View`] has both forms.
#[derive(Debug)]
pub(super) struct Seatbelt {
    profile: String,
}

/// By its path: the search path may name one that a command can write to.
const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// What any program needs: to start others and to signal them, to ask for names of users and for facts of the system, and
/// to see that files exist.
const ANY: &str = r#"(version 1)
(deny default)
(allow process-exec process-fork)
(allow process-info* signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.bsd.dirhelper"))
(allow file-read-metadata)
(allow file-read* (literal "/") (literal "/dev/random") (literal "/dev/urandom") (subpath "/dev/fd"))
(allow file-read* file-write-data file-ioctl (literal "/dev/null") (literal "/dev/zero"))
"#;

/// Sockets, names of hosts, and certificates.
const NETWORK: &str = r#"(allow network* system-socket)
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.dnssd.service")
  (global-name "com.apple.trustd.agent"))
"#;

impl Seatbelt {
    pub(super) fn new(view: &View) -> Result<Self, SandboxError> {
        let mut profile = ANY.to_owned();
        if view.network {
            profile += NETWORK;
        }
        let writable = || view.writable.iter().chain([&view.scratch]);
        rule(&mut profile, "allow file-read*", "subpath", view.readable.iter().chain(writable()))?;
        rule(&mut profile, "allow file-write*", "subpath", writable())?;
        rule(&mut profile, "deny file-write*", "subpath", &view.read_only)?;
        rule(&mut profile, "deny file-read* file-write*", "subpath", &view.hidden)?;
        // Under another name of a directory around it, what is denied would be allowed.
        let kept = view.read_only.iter().chain(&view.hidden);
        let around = kept.flat_map(|path| path.ancestors().skip(1));
        let around = around.filter(|around| writable().any(|writable| around.starts_with(writable)));
        let mut around: Vec<PathBuf> = around.map(Path::to_owned).collect();
        around.sort();
        around.dedup();
        rule(&mut profile, "deny file-write-unlink", "literal", &around)?;
        Ok(Self { profile })
    }

    /// The command that runs another one behind the profile.
    pub(super) fn around(&self, inner: CommandLine) -> CommandLine {
        let before = ["-p".to_owned(), self.profile.clone(), "--".to_owned(), inner.program];
        CommandLine { program: PROGRAM.to_owned(), arguments: before.into_iter().chain(inner.arguments).collect() }
    }
}

/// A rule about paths; none, if there are no paths.
fn rule<'a>(
    profile: &mut String,
    rule: &str,
    filter: &str,
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), SandboxError> {
    let mut paths = paths.into_iter().peekable();
    if paths.peek().is_none() {
        return Ok(());
    }
    let _ = write!(profile, "({rule}");
    for path in paths {
        let unspeakable = || SandboxError::Unavailable(format!("{} is not UTF-8, and can't be told", path.display()));
        let text = path.to_str().ok_or_else(unspeakable)?;
        let _ = write!(profile, "\n  ({filter} \"{}\")", text.replace('\\', r"\\").replace('"', r#"\""#));
    }
    profile.push_str(")\n");
    Ok(())
}

/// What it leaves open that namespaces don't.
#[cfg(target_os = "macos")]
pub(super) fn gaps() -> Vec<String> {
    vec![
        "commands can see that files outside exist".to_owned(),
        "commands that leave their process group go on when they are cancelled".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(network: bool) -> View {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        View {
            directory: "/project".into(),
            home: Some("/home/me".into()),
            readable: paths(&["/usr", "/odd \"name\\"]),
            writable: paths(&["/project"]),
            read_only: paths(&["/project/a/b/.git"]),
            hidden: paths(&["/project/.env"]),
            scratch: "/scratch".into(),
            network,
        }
    }

    #[test]
    fn what_is_denied_stands_behind_what_is_allowed() {
        let profile = Seatbelt::new(&view(false)).unwrap().profile;
        let rules = profile.strip_prefix(ANY).unwrap();
        let expected = concat!(
            "(allow file-read*\n  (subpath \"/usr\")\n  (subpath \"/odd \\\"name\\\\\")\n  (subpath \"/project\")\n  (subpath \"/scratch\"))\n",
            "(allow file-write*\n  (subpath \"/project\")\n  (subpath \"/scratch\"))\n",
            "(deny file-write*\n  (subpath \"/project/a/b/.git\"))\n",
            "(deny file-read* file-write*\n  (subpath \"/project/.env\"))\n",
            "(deny file-write-unlink\n  (literal \"/project\")\n  (literal \"/project/a\")\n  (literal \"/project/a/b\"))\n",
        );
        assert_eq!(rules, expected);
        assert!(Seatbelt::new(&view(true)).unwrap().profile.contains("(allow network*"));
    }

    #[test]
    fn the_command_stands_behind_the_profile() {
        let inner = CommandLine { program: "sh".into(), arguments: vec!["-c".into(), "ls".into()] };
        let around = Seatbelt { profile: "(version 1)".into() }.around(inner);
        assert_eq!(around.program, "/usr/bin/sandbox-exec");
        assert_eq!(around.arguments, ["-p", "(version 1)", "--", "sh", "-c", "ls"]);
    }
}
