use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::secrets::{home_directory, is_home, secrets};
use crate::workspace::Workspace;

/// What a confined command sees of the file system, and whether it has a network. All paths are absolute and exist.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Where the command starts.
    pub(super) directory: PathBuf,
    /// The person's home, in place of which there is little.
    pub(super) home: Option<PathBuf>,
    pub(super) readable: Vec<PathBuf>,
    pub(super) writable: Vec<PathBuf>,
    /// What stays as it is although it lies in a writable directory.
    pub(super) read_only: Vec<PathBuf>,
    /// What isn't there although it lies in a readable or writable directory.
    pub(super) hidden: Vec<PathBuf>,
    /// The command's temporary directory.
    pub(super) scratch: PathBuf,
    pub(super) network: bool,
}

/// What is empty at first, or a command's own.
pub(super) const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// The directories of a system that hold programs and their settings.
const SYSTEM: &str = "/bin /etc /gnu /lib /lib32 /lib64 /libx32 /nix /opt /sbin /snap /sys/devices/system /sys/kernel/mm /usr /run/current-system \
    /run/opengl-driver /run/systemd/resolve /run/resolvconf /var/lib/dpkg /var/lib/rpm /var/lib/pacman \
    /var/cache/fontconfig /var/cache/ldconfig \
    /System /Library /private/etc /private/var/db/dyld /private/var/select /Applications/Xcode.app";

/// The places beneath a home where toolchains and their packages live.
const OF_HOME: &str = ".cargo .rustup go .go .goenv .gvm .nvm .fnm .nodenv .volta .n .npm .yarn .bun .deno .pnpm-store \
    .local/share/pnpm .local/share/fnm .cache/node .cache/yarn .cache/pnpm .cache/deno .corepack \
    .cache/node-gyp .pyenv .conda miniconda3 anaconda3 miniforge3 mambaforge .virtualenvs .cache/pip \
    .cache/uv .cache/pypoetry .cache/pre-commit .local/share/uv .local/share/pypoetry \
    .local/share/virtualenvs .local/pipx .local/share/pipx .local/lib .local/bin .local/include .rbenv .rvm \
    .gem .bundle .local/share/gem .asdf .local/share/mise .local/share/rtx .sdkman .jenv .jabba .m2 .gradle \
    .ivy2 .sbt .coursier .cache/coursier .konan .dotnet .nuget/packages .ghcup .cabal .stack .opam .elan \
    .julia .juliaup .swiftly .swiftpm .pub-cache .mix .hex/packages .kerl .platformio Android/Sdk \
    Library/Caches Library/Python Library/pnpm Library/Android/sdk Library/Developer \
    .nix-profile .nix-defexpr .cache/go-build .cache/bazel .cache/zig .cache/ccache .cache/sccache .ccache \
    .gitconfig .config/git .editorconfig bin";

/// The variables that say where else toolchains live.
const VARIABLES: &str = "CARGO_HOME RUSTUP_HOME GOPATH GOROOT GOMODCACHE GOCACHE JAVA_HOME MAVEN_HOME GRADLE_USER_HOME DOTNET_ROOT \
    NVM_DIR VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT UV_CACHE_DIR \
    GEM_HOME RBENV_ROOT ASDF_DATA_DIR MISE_DATA_DIR";

impl View {
    /// What the commands of a workspace see, given their environment and what must stay as it is.
    pub(crate) fn new(
        workspace: &Workspace,
        variables: &BTreeMap<OsString, OsString>,
        scratch: &Path,
        network: bool,
        protected: &[PathBuf],
    ) -> Self {
        let home = variables.get(OsStr::new("HOME")).map(PathBuf::from).filter(|home| is_home(home));
        let home = home.or_else(home_directory).filter(|home| home.is_dir());
        let explicit: Vec<PathBuf> = workspace.extra_readable().chain(workspace.extra_writable()).cloned().collect();
        let own: Vec<PathBuf> = explicit.iter().cloned().chain([workspace.root().to_owned()]).collect();
        let mut readable: Vec<PathBuf> = SYSTEM.split_ascii_whitespace().map(PathBuf::from).collect();
        readable.extend(home.iter().flat_map(|home| OF_HOME.split_ascii_whitespace().map(|name| home.join(name))));
        readable.extend(programs(variables, home.as_deref()));
        readable.extend(enclosing_repository(workspace.root(), home.as_deref()));
        readable.extend(workspace.extra_readable().cloned());
        readable.extend(workspace.outputs().directory().map(Path::to_owned));
        let mut writable = Vec::new();
        if workspace.may_write() {
            writable.push(workspace.root().to_owned());
            writable.extend(workspace.extra_writable().cloned());
            // Whoever lets the variable through wants builds to go there.
            let target = variables.get(OsStr::new("CARGO_TARGET_DIR")).map(PathBuf::from);
            writable.extend(target.filter(|target| target.is_absolute()));
        } else {
            readable.push(workspace.root().to_owned());
            readable.extend(workspace.extra_writable().cloned());
        }
        let hidden = secrets(home.as_deref()).into_iter().chain(workspace.hidden().cloned());
        let hidden = hidden.filter(|hidden| !own.contains(hidden));
        let read_only = protected.iter().filter(|path| !explicit.iter().any(|explicit| explicit.starts_with(path)));
        let writable = existing(writable);
        let mut readable = existing(readable);
        // What may be written may be read.
        readable.retain(|path| !writable.iter().any(|writable| path.starts_with(writable)));
        // Elsewhere there is nothing to be hidden, and behind a link it is the target that must be.
        let is_seen = |path: &PathBuf| readable.iter().chain(&writable).any(|seen| path.starts_with(seen));
        let hidden: Vec<PathBuf> =
            existing(hidden).into_iter().filter(|path| is_seen(path) && !path.is_symlink()).collect();
        let covers = home.iter().chain(&writable).chain(&hidden).map(PathBuf::as_path).chain(TEMPORARY.map(Path::new));
        let covers: Vec<&Path> = covers.collect();
        Self {
            directory: workspace.root().to_owned(),
            // Elsewhere, it would bring to light what isn't seen.
            read_only: existing(read_only.filter(|path| writable.iter().any(|seen| path.starts_with(seen))).cloned()),
            readable: outermost(&readable, &covers),
            hidden,
            writable,
            home,
            scratch: scratch.to_owned(),
            network,
        }
    }

    /// The same view of the places that a probe needs, and no others.
    pub(super) fn of_probe(directory: &Path, scratch: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            home: None,
            readable: existing(SYSTEM.split_ascii_whitespace().map(PathBuf::from)),
            writable: vec![directory.to_owned()],
            read_only: vec![],
            hidden: vec![],
            scratch: scratch.to_owned(),
            network: false,
        }
    }
}

/// The repository that a workspace is a part of, without which git and build tools find nothing there. Neither a home nor
/// what belongs to somebody else counts.
fn enclosing_repository(root: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let owner = |path: &Path| path.metadata().ok().map(|metadata| metadata.uid());
    let around = root.ancestors().take_while(|path| is_home(path) && owner(path) == owner(root));
    let mut around = around.filter(|path| !home.is_some_and(|home| home.starts_with(path)));
    around.find(|path| path.join(".git").exists()).map(Path::to_owned)
}

/// Where the programs of a search path live, and what their variables name. A home itself is never among it.
fn programs(variables: &BTreeMap<OsString, OsString>, home: Option<&Path>) -> Vec<PathBuf> {
    let variable = |name: &str| variables.get(OsStr::new(name)).map(PathBuf::from);
    let is_narrow = |path: &PathBuf| {
        is_home(path) && !home.is_some_and(|home| home.starts_with(path) || *path == home.join(".local"))
    };
    let path = variables.get(OsStr::new("PATH")).into_iter().flat_map(std::env::split_paths);
    let path = path.filter(|directory| directory.is_absolute()).flat_map(|directory| {
        // Libraries lie beside `bin`.
        let around = directory.parent().map(Path::to_owned);
        let around = around.filter(|_| directory.ends_with("bin") || directory.ends_with("sbin"));
        [Some(directory), around]
    });
    let named = VARIABLES.split_ascii_whitespace().map(variable);
    path.chain(named).flatten().filter(is_narrow).collect()
}

/// Those of some directories that don't come with another one, where nothing else covers them there.
fn outermost(paths: &[PathBuf], covers: &[&Path]) -> Vec<PathBuf> {
    let comes_with = |path: &PathBuf, other: &PathBuf| {
        let is_covered = |cover: &&Path| cover.starts_with(other) && path.starts_with(cover);
        path != other && path.starts_with(other) && !covers.iter().any(is_covered)
    };
    paths.iter().filter(|path| !paths.iter().any(|other| comes_with(path, other))).cloned().collect()
}

/// Those that exist, each once; what is a link, by where it leads, too.
fn existing(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        let Ok(real) = path.canonicalize() else { continue };
        for path in [path, real] {
            if path.is_absolute() && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}
