use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// How a command may use sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// As it likes.
    All,
    /// Those that a network namespace holds. Others reach the machine around this one (`AF_VSOCK`), its devices, or
    /// parts of the kernel that nobody needs.
    Namespaced,
    /// Connected pairs only. A socket with an address would reach the services of this machine by their paths, and
    /// Landlock, as it is today, doesn't look at those.
    Pairs,
}

/// System calls that no build and no test needs, and that attack the kernel or the walls.
const REFUSED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Looking into other processes, and memory that is shared by names. In namespaces there are none but the command's own.
const REFUSED_BESIDE_OTHERS: &[i64] = &[
    libc::SYS_kcmp,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_semget,
    libc::SYS_shmget,
];

/// Calls that change how another process runs, and the place of its number among the arguments. For the caller itself it
/// is 0.
const REFUSED_UPON_OTHERS: [(i64, u8); 7] = [
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_setpriority, 1),
];

/// A bit in the numbers of the x32 calls of x86-64, which the same table serves.
const X32: i64 = 0x4000_0000;

/// `ptrace` and its kind have numbers of their own there.
const X32_BESIDE_OTHERS: [i64; 3] = [X32 | 521, X32 | 539, X32 | 540];

/// The filter for commands that share the process namespace with others.
pub(super) fn beside_others(sockets: Sockets) -> io::Result<BpfProgram> {
    refuse(sockets, REFUSED_BESIDE_OTHERS)
}

/// The filter for commands that have namespaces of their own.
pub(super) fn apart(sockets: Sockets) -> io::Result<BpfProgram> {
    refuse(sockets, &[])
}

/// A filter that says of `clone3` that there is none: its flags stand in memory, where no filter can look. Every C
/// library then takes `clone` instead.
pub(super) fn without_clone3() -> io::Result<BpfProgram> {
    let calls = [libc::SYS_clone3, libc::SYS_clone3 | X32].map(|call| (call, vec![]));
    filter(BTreeMap::from(calls), libc::ENOSYS)
}

/// Installs a filter in this thread, which must have given up gaining privileges.
pub(super) fn apply(filter: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(filter).map_err(io::Error::other)
}

/// A filter as the kernel and `bwrap` take it.
pub(super) fn bytes(program: &BpfProgram) -> Vec<u8> {
    let instructions = program.iter().flat_map(|instruction| {
        let [code_0, code_1] = instruction.code.to_ne_bytes();
        let [k_0, k_1, k_2, k_3] = instruction.k.to_ne_bytes();
        [code_0, code_1, instruction.jt, instruction.jf, k_0, k_1, k_2, k_3]
    });
    instructions.collect()
}

fn refuse(sockets: Sockets, more: &[i64]) -> io::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED.iter().chain(more) {
        rules.insert(*call, vec![]);
    }
    if !more.is_empty() {
        for (call, argument) in REFUSED_UPON_OTHERS {
            rules.insert(call, vec![rule(&[(argument, Test::IsNot(0))])?]);
        }
        if cfg!(target_arch = "x86_64") {
            rules.extend(X32_BESIDE_OTHERS.map(|call| (call, vec![])));
        }
    }
    let namespaces = [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ];
    let namespaces = namespaces.map(|flag| rule(&[(0, Test::Has(flag.unsigned_abs().into()))]));
    rules.insert(libc::SYS_clone, namespaces.into_iter().collect::<io::Result<_>>()?);
    // Typing into a terminal from behind.
    rules.insert(libc::SYS_ioctl, vec![rule(&[(1, Test::Is(TIOCSTI))])?, rule(&[(1, Test::Is(TIOCLINUX))])?]);
    let other_than = |families: &[libc::c_int]| {
        let tests: Vec<_> = families.iter().map(|family| (0, Test::IsNot(family.unsigned_abs().into()))).collect();
        rule(&tests)
    };
    if sockets == Sockets::Namespaced {
        let namespaced = other_than(&[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK])?;
        rules.insert(libc::SYS_socket, vec![namespaced]);
    }
    if sockets == Sockets::Pairs {
        rules.insert(libc::SYS_socket, vec![]);
        // A datagram can be sent to any address, also from a pair.
        let mut pairs = vec![other_than(&[libc::AF_UNIX])?];
        pairs.push(rule(&[(1, Test::Masked(0xf, libc::SOCK_DGRAM.unsigned_abs().into()))])?);
        rules.insert(libc::SYS_socketpair, pairs);
    }
    if cfg!(target_arch = "x86_64") {
        let x32: Vec<_> =
            rules.iter().filter(|(call, _)| **call & X32 == 0).map(|(c, r)| (c | X32, r.clone())).collect();
        rules.extend(x32);
    }
    filter(rules, libc::EPERM)
}

/// Requests that put letters into a terminal. `libc` has them as another type on each system.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

enum Test {
    Is(u64),
    IsNot(u64),
    Has(u64),
    Masked(u64, u64),
}

fn rule(tests: &[(u8, Test)]) -> io::Result<SeccompRule> {
    let condition = |(argument, test): &(u8, Test)| {
        let (operator, value) = match *test {
            Test::Is(value) => (SeccompCmpOp::Eq, value),
            Test::IsNot(value) => (SeccompCmpOp::Ne, value),
            Test::Has(bit) => (SeccompCmpOp::MaskedEq(bit), bit),
            Test::Masked(mask, value) => (SeccompCmpOp::MaskedEq(mask), value),
        };
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let conditions = tests.iter().map(condition).collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(io::Error::other)
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> io::Result<BpfProgram> {
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}
