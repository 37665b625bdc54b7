//! Whom commands reach.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;

use terret_tools::Level;

use super::{Arena, control_and_levels, levels};

const PYTHON: &str = "/usr/bin/python3";

/// Services of this machine that commands may try to reach.
struct Services {
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    _path: UnixListener,
    _datagrams: UnixDatagram,
    _abstract: UnixListener,
}

impl Services {
    fn start(around: &Path) -> Self {
        let name = SocketAddr::from_abstract_name(format!("terret-test-{}", around.display())).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").ok(),
            udp,
            _path: UnixListener::bind(around.join("service")).unwrap(),
            _datagrams: UnixDatagram::bind(around.join("datagrams")).unwrap(),
            _abstract: UnixListener::bind_addr(&name).unwrap(),
        }
    }

    /// Programs that say `reached` once they have reached somebody.
    fn attacks(&self, around: &Path) -> Vec<(&'static str, String)> {
        let port = self.tcp.local_addr().unwrap().port();
        let udp = self.udp.local_addr().unwrap().port();
        let around = around.display();
        let mut attacks = vec![
            ("TCP", format!("socket.create_connection(('127.0.0.1', {port}), 2)")),
            ("UDP", format!("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))")),
            ("a path", format!("socket.socket(socket.AF_UNIX).connect('{around}/service')")),
            (
                "datagrams to a path",
                format!("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{around}/datagrams')"),
            ),
            (
                "datagrams from a pair",
                format!("socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '{around}/datagrams')"),
            ),
            ("an abstract name", format!("socket.socket(socket.AF_UNIX).connect('\\0terret-test-{around}')")),
        ];
        if let Some(tcp6) = &self.tcp6 {
            let port = tcp6.local_addr().unwrap().port();
            attacks.push(("IPv6", format!("socket.create_connection(('::1', {port}), 2)")));
        }
        attacks
    }
}

#[tokio::test]
async fn without_a_network_nobody_is_reached() {
    if !Path::new(PYTHON).exists() {
        skipped!("there is no {PYTHON} to attack with");
        return;
    }
    for level in control_and_levels() {
        let arena = Arena::new(level);
        let services = Services::start(&arena.path(""));
        for (what, attack) in services.attacks(&arena.path("")) {
            let attack = attack.replace("//", "/");
            std::fs::write(arena.path("project/attack.py"), format!("import socket\n{attack}\nprint('reached')\n"))
                .unwrap();
            let answer = arena.run(&format!("{PYTHON} attack.py")).await;
            let mut reached = answer.text == "reached";
            if what == "UDP" {
                // Sending succeeds wherever there is a network; arriving is what counts.
                std::thread::sleep(std::time::Duration::from_millis(50));
                reached = services.udp.recv(&mut [0]).is_ok();
            }
            assert_eq!(reached, level.is_none(), "{what} on {level:?}: {}", answer.text);
        }
        // By the shell itself.
        let port = services.tcp.local_addr().unwrap().port();
        let answer = arena.run(&format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached")).await;
        assert_eq!(answer.text == "reached", level.is_none(), "on {level:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn sockets_that_no_namespace_holds_are_refused() {
    if !Path::new(PYTHON).exists() {
        skipped!("there is no {PYTHON} to attack with");
        return;
    }
    // The machine around a virtual one (AF_VSOCK, 40), Bluetooth (31), and the kernel's ciphers (38).
    for family in [40, 31, 38] {
        let attack = format!("import socket\ntry: socket.socket({family}, 1)\nexcept OSError as e: print(e.errno)\n");
        for level in levels() {
            let answer = Arena::new(Some(level)).file("attack.py", &attack).run(&format!("{PYTHON} attack.py")).await;
            // EPERM. A kernel that has no such sockets says something else.
            assert_eq!(answer.text, "1", "family {family} on {level}");
        }
    }
}

#[tokio::test]
async fn rings_of_the_kernel_that_make_system_calls_unseen_are_refused() {
    if !Path::new(PYTHON).exists() {
        skipped!("there is no {PYTHON} to attack with");
        return;
    }
    // The number is the same on all architectures. A null parameter is EFAULT (14) where the call is let through.
    let attack =
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 1, 0); print(ctypes.get_errno())";
    for level in control_and_levels() {
        let answer = Arena::new(level).run(&format!("{PYTHON} -c '{attack}'")).await;
        let refused = answer.text == "1";
        if level.is_none() && refused {
            skipped!("this system itself refuses io_uring");
            return;
        }
        assert_eq!(refused, level.is_some(), "on {level:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn with_a_network_services_are_reached() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, options, _| {
            options.network = true;
            workspace
        });
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = service.local_addr().unwrap().port();
        let answer = arena.run(&format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached")).await;
        assert_eq!(answer.text, "reached", "on {level}");
    }
}

#[tokio::test]
async fn a_loopback_of_its_own_is_left_to_a_command_in_a_namespace() {
    if !levels().contains(&Level::Bubblewrap) || !Path::new(PYTHON).exists() {
        skipped!("needs bubblewrap and {PYTHON}");
        return;
    }
    let command = format!(
        "{PYTHON} -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); \
         socket.create_connection(s.getsockname()); print(\"reached\")'"
    );
    assert_eq!(Arena::new(Some(Level::Bubblewrap)).run(&command).await.text, "reached");
}
