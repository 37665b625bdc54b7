use std::collections::BTreeMap;
use std::ffi::OsString;

/// Which environment variables commands see.
///
/// Keys and tokens stand in environments, so commands get an allow-list of this program's variables and no more: the
/// search path, the person and the home, language and time zone, temporary and XDG directories, and where the common
/// toolchains live (`CARGO_HOME`, but not `CARGO_REGISTRY_TOKEN`). [`pass`](Self::pass) lets others through. Some are
/// set always, so that programs neither ask, nor page, nor colour: `AI_AGENT=terret`, `NO_COLOR=1`, `TERM=dumb`,
/// `PAGER=cat`, `GIT_PAGER=cat`, `GIT_TERMINAL_PROMPT=0`. [`set`](Self::set) adds to them and outweighs them.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    passed: Vec<String>,
    set: BTreeMap<String, String>,
}

const PASSED: &str = "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP \
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR \
    CARGO_HOME CARGO_TARGET_DIR RUSTUP_HOME RUSTUP_TOOLCHAIN GOPATH GOROOT GOCACHE GOMODCACHE \
    JAVA_HOME MAVEN_HOME GRADLE_USER_HOME DOTNET_ROOT NVM_DIR NVM_BIN VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR \
    VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT UV_CACHE_DIR GEM_HOME GEM_PATH RBENV_ROOT ASDF_DATA_DIR MISE_DATA_DIR \
    PKG_CONFIG_PATH LD_LIBRARY_PATH LIBRARY_PATH CPATH SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE NIX_PATH";

const PASSED_PREFIX: &str = "LC_";

const SET: [(&str, &str); 6] = [
    ("AI_AGENT", "terret"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("TERM", "dumb"),
];

impl Environment {
    /// Also passes this program's variable of this name, if there is one.
    #[must_use]
    pub fn pass(mut self, name: impl Into<String>) -> Self {
        self.passed.push(name.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.insert(name.into(), value.into());
        self
    }

    /// The variables of a command, given those of this program.
    pub(super) fn variables(
        &self,
        own: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> BTreeMap<OsString, OsString> {
        let passes = |name: &str| {
            let mut passed = PASSED.split_ascii_whitespace().chain(self.passed.iter().map(String::as_str));
            passed.any(|passed| passed == name) || name.starts_with(PASSED_PREFIX)
        };
        let passed = own.into_iter().filter(|(name, _)| name.to_str().is_some_and(passes));
        let always = SET.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let set = self.set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        passed.chain(always).chain(set).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_stays_out() {
        let own = [
            ("PATH", "/bin"),
            ("LC_TIME", "C"),
            ("CARGO_HOME", "/c"),
            ("TERM", "xterm"),
            ("EDITOR", "vi"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("CARGO_REGISTRY_TOKEN", "secret"),
            ("BASH_ENV", "/evil"),
            ("LD_PRELOAD", "/evil"),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let environment = Environment::default().pass("EDITOR").set("A", "b").set("PAGER", "less");
        let seen: Vec<(String, String)> = environment
            .variables(own)
            .into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect();
        let expected = [
            ("A", "b"),
            ("AI_AGENT", "terret"),
            ("CARGO_HOME", "/c"),
            ("EDITOR", "vi"),
            ("GIT_PAGER", "cat"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LC_TIME", "C"),
            ("NO_COLOR", "1"),
            ("PAGER", "less"),
            ("PATH", "/bin"),
            ("TERM", "dumb"),
        ];
        assert_eq!(seen, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
