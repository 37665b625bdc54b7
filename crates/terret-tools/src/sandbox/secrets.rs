use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Beneath a home, what holds keys, tokens, sessions of browsers and what was typed.
const OF_HOME: &str = ".ssh .gnupg .password-store .local/share/keyrings .pki .aws .azure .kube .docker .terraform.d .oci \
    .config/gcloud .config/doctl .config/hcloud .config/gh .config/glab-cli .config/hub .config/op \
    .config/rclone .config/containers/auth.json .config/git/credentials .git-credentials .netrc .vault-token \
    .pgpass .my.cnf .s3cfg .npmrc .yarnrc .yarnrc.yml .pypirc .config/pip .gem/credentials .m2/settings.xml \
    .m2/settings-security.xml .gradle/gradle.properties .cargo/credentials .cargo/credentials.toml \
    .nuget/NuGet .composer/auth.json .config/composer/auth.json .ivy2/.credentials .sbt/.credentials .mozilla \
    .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .bash_history .zsh_history \
    .local/share/fish .python_history .node_repl_history .psql_history .mysql_history .sqlite_history \
    .rediscli_history .claude .claude.json .codex .gemini .pi .config/goose .config/github-copilot \
    Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages Library/Containers \
    .config/terret .local/state/terret .local/share/terret";

/// What only the administrator should read. It matters where this program runs as root.
const OF_SYSTEM: &str = "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private \
    /etc/pki/tls/private /etc/letsencrypt /etc/krb5.keytab /etc/wireguard \
    /etc/NetworkManager/system-connections /Library/Keychains /etc/docker /etc/kubernetes /etc/rancher /etc/ppp";

/// Paths that no tool reads, and no command on a rung of the ladder: keys and tokens in their usual places beneath a
/// home, the host keys of this machine, and what this program itself keeps. They need not exist.
pub(crate) fn secrets(home: Option<&Path>) -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own_home = home_directory();
    let homes = own_home.iter().map(PathBuf::as_path).chain(home);
    let of_homes = homes.flat_map(|home| OF_HOME.split_ascii_whitespace().map(|name| home.join(name)));
    let of_system = OF_SYSTEM.split_ascii_whitespace().map(PathBuf::from);
    let host_keys = fs::read_dir("/etc/ssh").into_iter().flatten().filter_map(Result::ok);
    let host_keys = host_keys.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ssh_host_") && name.ends_with("_key")
    });
    let cargo = absolute("CARGO_HOME").into_iter();
    let cargo = cargo.flat_map(|cargo| [cargo.join("credentials"), cargo.join("credentials.toml")]);
    let xdg = ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"].into_iter().filter_map(absolute);
    let ours = xdg.map(|base| base.join("terret")).chain(absolute("TERRET_HOME"));
    let unlisted = of_root().iter().cloned();
    of_homes.chain(of_system).chain(unlisted).chain(host_keys).chain(cargo).chain(ours).collect()
}

/// What in `/etc` nobody else may read, where this program runs as root: it would be its own there, without any
/// capability. Found out once.
fn of_root() -> &'static [PathBuf] {
    static FOUND: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found = Vec::new();
        let mut open = if rustix::process::geteuid().is_root() { vec![PathBuf::from("/etc")] } else { vec![] };
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok) {
                let Ok(metadata) = entry.metadata() else { continue };
                let needed = if metadata.is_dir() { 0o005 } else { 0o004 };
                match metadata.mode() & needed == needed {
                    _ if metadata.is_symlink() => {}
                    true if metadata.is_dir() => open.push(entry.path()),
                    true => {}
                    false => found.push(entry.path()),
                }
            }
        }
        found
    })
}

/// The home of the person who runs this program.
pub(super) fn home_directory() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| is_home(home))
}

/// Whether a path can be somebody's home at all. Services have `/` or nothing.
pub(super) fn is_home(path: &Path) -> bool {
    path.is_absolute() && path.parent().is_some()
}
