use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};
use seccompiler::BpfProgram;

use super::seccomp::Sockets;
use super::{Level, SandboxError, View, restricted, seccomp};

/// The oldest version of Landlock that keeps files outside from being cut (Linux 6.2).
const NEEDED: ABI = ABI::V3;

/// The newest one that is made use of: it also keeps signals and abstract sockets inside (Linux 6.12).
const WANTED: ABI = ABI::V6;

/// Devices that programs expect to be able to use, and that reach nobody. Terminals do.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What a command may reach by Landlock's account, and the filters that go with it.
#[derive(Debug)]
pub(super) struct Rules {
    ruleset: RulesetCreated,
    filters: [BpfProgram; 2],
}

impl Rules {
    pub(super) fn new(view: &View) -> Result<Self, SandboxError> {
        version()?;
        // Rules add up, and none takes away.
        let unhidable = view.hidden.iter().find(|hidden| view.writable.iter().any(|path| hidden.starts_with(path)));
        if let Some(path) = unhidable {
            return Err(SandboxError::CannotHide { path: path.display().to_string(), level: Level::Landlock });
        }
        let sockets = if view.network { Sockets::All } else { Sockets::Pairs };
        let unavailable = |error: &dyn std::fmt::Display| SandboxError::Unavailable(error.to_string());
        Ok(Self {
            ruleset: ruleset(view).map_err(|error| unavailable(&error))?,
            filters: [
                seccomp::without_clone3().map_err(|error| unavailable(&error))?,
                seccomp::beside_others(sockets).map_err(|error| unavailable(&error))?,
            ],
        })
    }

    /// Restricts this thread.
    pub(super) fn restrict(self) -> io::Result<()> {
        restricted::drop_capabilities()?;
        restricted::gain_nothing()?;
        self.ruleset.restrict_self().map_err(io::Error::other)?;
        self.filters.iter().try_for_each(seccomp::apply)
    }
}

/// Which version of Landlock there is, if it is enough.
pub(super) fn version() -> Result<ABI, SandboxError> {
    static STATUS: OnceLock<LandlockStatus> = OnceLock::new();
    match *STATUS.get_or_init(status) {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= NEEDED => Ok(effective_abi),
        LandlockStatus::Available { effective_abi, .. } => Err(SandboxError::Unavailable(format!(
            "the kernel's Landlock has version {}, and {} is needed (Linux 6.2)",
            effective_abi as i32, NEEDED as i32
        ))),
        LandlockStatus::NotEnabled => {
            Err(SandboxError::Unavailable("the kernel has Landlock, but it is not switched on (lsm=landlock,…)".into()))
        }
        LandlockStatus::NotImplemented => Err(SandboxError::Unavailable(
            "the kernel has no Landlock (Linux 5.13), or a container's filter refuses it".into(),
        )),
    }
}

/// What the kernel tells a thread that restricts itself.
fn status() -> LandlockStatus {
    let restrict = || {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeBlock).and_then(Ruleset::create);
        ruleset.and_then(RulesetCreated::restrict_self).map(|status| status.landlock)
    };
    let asked = std::thread::scope(|scope| scope.spawn(restrict).join());
    asked.ok().and_then(Result::ok).unwrap_or(LandlockStatus::NotImplemented)
}

/// What is left open, in words.
pub(super) fn gaps() -> Vec<String> {
    let mut gaps = vec![
        "commands can change permissions and times of your files outside, and see that they exist".to_owned(),
        "commands can see which other programs run".to_owned(),
    ];
    if !Path::new("/proc/self/stat").exists() {
        gaps.push("without /proc, what leaves its session outlives a cancel".to_owned());
    }
    if let Ok(abi) = version()
        && abi < WANTED
    {
        gaps.push("commands can send signals to your other programs (from Linux 6.12 on they can't)".to_owned());
    }
    gaps
}

/// Keeps signals and abstract sockets of this thread's children inside, where the kernel can, and restricts nothing
/// else. Mounting stays possible, which file rules would forbid.
pub(super) fn restrict_scopes() -> io::Result<()> {
    if version().is_ok_and(|abi| abi >= WANTED) {
        let ruleset = Ruleset::default().scope(Scope::from_all(WANTED)).and_then(Ruleset::create);
        ruleset.and_then(RulesetCreated::restrict_self).map_err(io::Error::other)?;
    }
    Ok(())
}

fn ruleset(view: &View) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?;
    if !view.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(WANTED))?;
    }
    let readable: Vec<PathBuf> = view.readable.iter().flat_map(|path| without(path, &view.hidden)).collect();
    let read = AccessFs::from_read(WANTED);
    let devices = BitFlags::from(AccessFs::ReadFile)
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::IoctlDev;
    ruleset
        .create()?
        .add_rules(path_beneath_rules(&readable, read))?
        .add_rules(path_beneath_rules(["/proc"], read))?
        .add_rules(path_beneath_rules(DEVICES, devices))?
        .add_rules(path_beneath_rules(&view.writable, AccessFs::from_all(WANTED)))?
        .add_rules(path_beneath_rules([&view.scratch], AccessFs::from_all(WANTED)))
}

/// A directory without some that lie in it: itself if there are none, or else what is beside them.
fn without(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    if hidden.iter().any(|hidden| hidden == path) {
        return vec![];
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    // Where a link leads has to be permitted by itself.
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    entries.flat_map(|entry| without(&entry.path(), hidden)).collect()
}
