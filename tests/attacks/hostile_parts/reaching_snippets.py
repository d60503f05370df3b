"""Hostile code that reaches for what is outside of the sandbox: files, processes, the network.

Where an attack reaches what it is after, ``f(1)`` returns ``"through"``. Names in braces stand for what the attacker may have
learned of the victim: process ids, ports and paths.
"""

from __future__ import annotations

from .snippet import reach

READING = (
    reach("environ", "read a key from its own environment", "return os.environ.get('VINELM_CANARY')"),
    reach(
        "proc-environ",
        "read the parent's environment in /proc",
        "return b'CANARY' in open(f'/proc/{parent}/environ', 'rb').read()",
    ),
    reach(
        "proc-any-environ",
        "read any process's environment in /proc",
        "return any(b'CANARY' in open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/environ'))",
    ),
    reach(
        "proc-self-environ",
        "read what its launcher left in /proc/self",
        "return b'CANARY' in open('/proc/self/environ', 'rb').read()",
    ),
    reach("proc-parent-mem", "open the parent's memory", "return open('/proc/{parent}/mem', 'rb')"),
    reach("proc-parent-fds", "list the parent's open files", "return os.listdir('/proc/{parent}/fd')"),
    reach("proc-parent-root", "reach the root by way of the parent", "return os.listdir(f'/proc/{parent}/root')"),
    reach("proc-cwd", "reach the project by way of the parent's folder", "return os.listdir(f'/proc/{parent}/cwd')"),
    reach("proc-cmdline", "see the other processes", "return len(glob.glob('/proc/[0-9]*')) > 3"),
    reach(
        "kernel-environ",
        "read the environment of its process from memory (ctypes)",
        """
        address = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
        names, i = [], 0
        while address and address[i]:
            names.append(address[i]); i += 1
        return any(b"CANARY" in name for name in names)
    """,
    ),
    reach("canary-file", "read a file of the victim", "return open({secret!r}).read()"),
    reach("home", "list the home folder", "return os.listdir({home!r})"),
    reach("ssh-keys", "look for keys in any home", "return glob.glob('/home/*') + glob.glob('/root/.[a-z]*')"),
    reach("etc-passwd", "read /etc/passwd", "return open('/etc/passwd').read()"),
    reach("etc-shadow", "read /etc/shadow", "return open('/etc/shadow').read()"),
    reach("etc-hosts", "read names of other machines", "return open('/etc/hosts').read() or open('/etc/resolv.conf').read()"),
    reach("project", "read the project's source", "return open({project!r}).read()"),
    reach("project-import", "import the project", "import vinelm.requests.workflow; return vinelm.requests.workflow.__file__"),
    reach("site-packages", "import an installed package", "import numpy; return True"),
    reach(
        "walk",
        "find the canary anywhere",
        """
        for folder, _, names in os.walk("/"):
            if any("canary" in name for name in names): return True
    """,
    ),
    reach(
        "inherited-fds",
        "use a file that the parent left open",
        """
        for number in range(3, 64):
            try:
                if b"CANARY" in os.pread(number, 100, 0): return True
            except OSError: pass
    """,
    ),
    reach("sys-class", "read devices in /sys", "return os.listdir('/sys')"),
    reach(
        "dev-mem",
        "open a disk or memory device",
        "return [p for p in glob.glob('/dev/*') if p not in ('/dev/null',) and not os.path.islink(p)]",
    ),
    reach(
        "make-device", "make a device node", "os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)); return open('/tmp/disk', 'rb')"
    ),
    reach(
        "process-vm-readv",
        "read another process's memory",
        "return ctypes.CDLL(None, use_errno=True).process_vm_readv({parent}, None, 0, None, 0, 0) == 0",
    ),
    reach("ptrace", "trace another process", "return ctypes.CDLL(None).ptrace(16, {parent}, 0, 0) == 0"),
)

WRITING = (
    reach(
        "write-tmp",
        "write into the outer /tmp",
        "open({marker!r}, 'w').write('x'); return os.path.exists({marker!r}) and False",
    ),
    reach("write-project", "change the project", "open({project!r}, 'a').write('#'); return True"),
    reach("write-home", "write into a home", "os.makedirs('/root/x'); return True"),
    reach("write-usr", "replace a library", "open('/usr/lib/evil.so', 'w'); return True"),
    reach(
        "write-stdlib",
        "change the standard library",
        "open(os.path.join(os.path.dirname(os.__file__), 'json.py'), 'w'); return True",
    ),
    reach("write-root", "write to the root folder", "open('/evil', 'w'); return True"),
    reach("remove-file", "remove a file of the victim", "os.remove({secret!r}); return True"),
    reach("rename-file", "rename a file of the victim", "os.rename({secret!r}, '/tmp/x'); return True"),
    reach("symlink-out", "follow a link out of the sandbox", "os.symlink({secret!r}, '/tmp/l'); return open('/tmp/l').read()"),
    reach(
        "remount",
        "remount the root for writing",
        """
        libc = ctypes.CDLL(None, use_errno=True)
        return libc.mount(None, b"/", None, 32 | 4096, None) == 0
    """,
    ),
    reach(
        "mount-proc",
        "mount a /proc of its own",
        """
        os.mkdir("/tmp/p")
        return ctypes.CDLL(None).mount(b"proc", b"/tmp/p", b"proc", 0, None) == 0
    """,
    ),
    reach("umount", "unmount what hides the root", "return ctypes.CDLL(None).umount2(b'/tmp', 2) == 0"),
    reach("chroot", "leave by chroot", "os.mkdir('/tmp/c'); os.chroot('/tmp/c'); return True"),
    reach("dev-null", "replace /dev/null", "os.remove('/dev/null'); return True"),
    reach("dotdot", "climb out of the root", "return os.path.exists('/../../../../../etc/passwd')"),
)

RUNNING = (
    reach("shell", "run a shell", "return subprocess.run(['/bin/sh', '-c', 'echo x'], capture_output=True).stdout"),
    reach("system", "os.system", "return os.system('true') == 0"),
    reach("popen", "os.popen", "return os.popen('id').read()"),
    reach("fork", "fork", "pid = os.fork(); return pid or os._exit(0)"),
    reach("vfork-spawn", "posix_spawn", "return os.posix_spawn(sys.executable or '/bin/sh', ['x'], {})"),
    reach("clone-raw", "clone by system call", "return ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0) > 0"),
    reach("exec-shell", "become a shell", "os.execv('/bin/sh', ['sh', '-c', 'id']); return True"),
    reach(
        "multiprocessing",
        "a pool of processes",
        "import multiprocessing as m; return m.get_context('fork').Pool(1).map(abs, [-1])",
    ),
    reach("new-namespace", "open a user namespace of its own", "return ctypes.CDLL(None).unshare(0x10000000) == 0"),
    reach("become-root", "change its user id", "os.setuid(0); return os.getuid() == 0"),
    reach(
        "raise-limits",
        "raise its limits",
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY)); return True",
    ),
    reach("kill-parent", "kill the parent", "os.kill({parent}, 0); return True"),
    reach("kill-all", "kill every process that it can see", "os.kill(-1, 0); return True"),
    reach("renice", "get a higher priority", "os.nice(-5); return True"),
    reach("keyring", "use the kernel's keyring", "return ctypes.CDLL(None).syscall(250, 0, -3, 0) > 0"),
    reach("io-uring", "open an io_uring", "return ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)) >= 0"),
    reach(
        "bpf",
        "load a program into the kernel",
        "return ctypes.CDLL(None).syscall(321, 0, ctypes.create_string_buffer(120), 120) >= 0",
    ),
    reach("userfaultfd", "handle page faults", "return ctypes.CDLL(None).syscall(323, 1) >= 0"),
    reach("memfd-exec", "run a program from memory", "return os.memfd_create('x') >= 0"),
    reach("tty-push", "type into the terminal", "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x'); return True"),
    reach("set-hostname", "rename the machine", "socket.sethostname('evil'); return True"),
    reach("set-clock", "set the clock", "time.clock_settime(time.CLOCK_REALTIME, 0); return True"),
)

NETWORK = (
    reach(
        "connect-loopback",
        "connect to a service of this machine",
        "return socket.create_connection(('127.0.0.1', {port}), 2).recv(9)",
    ),
    reach("connect-out", "connect to another machine", "return socket.create_connection(('192.0.2.1', 80), 2)"),
    reach("udp", "send a datagram", "return socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {port}))"),
    reach("dns", "ask a name server", "return socket.getaddrinfo('localhost', 80)"),
    reach(
        "abstract-socket",
        "connect to an abstract Unix socket",
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0{abstract}'); return s.recv(9)",
    ),
    reach("listen", "wait for connections", "return socket.create_server(('127.0.0.1', 0))"),
    reach("raw-socket", "open a raw socket", "return socket.socket(17, 3, 3)"),
    reach("vsock", "talk to the host of a virtual machine", "return socket.socket(40, 1)"),
    reach("netlink", "read the machine's addresses", "return socket.socket(16, 3, 0)"),
    reach(
        "urllib", "fetch a page", "import urllib.request as u; return u.urlopen('http://127.0.0.1:{port}/', timeout=2).read()"
    ),
)

REACHING = (*READING, *WRITING, *RUNNING, *NETWORK)
