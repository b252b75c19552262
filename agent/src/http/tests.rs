use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

fn loopback() -> TcpListener {
    bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port")
}

fn hello() -> Service {
    Service::new(|head: &Head| match head.uri.path() {
        "/" => Response::new(200, "application/json", "{}").with("X-Load-Balancing-Endpoint-Weight", "1"),
        _ => Response::not_found(),
    })
}

fn connect(handle: &ServerHandle) -> TcpStream {
    let stream = TcpStream::connect(handle.address().expect("TCP")).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    stream
}

/// All that comes until the other side closes; a connection that nobody had accepted is reset.
fn rest(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    String::from_utf8(bytes).expect("text")
}

fn ask(stream: &mut (impl Read + Write), request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("sent");
    rest(stream)
}

fn without_date(answer: &str) -> String {
    let (before, after) = answer.split_once("Date: ").expect("a date");
    let (date, after) = after.split_once("\r\n").expect("a line");
    assert!(date.ends_with(" GMT") && date.len() == "Sun, 06 Nov 1994 08:49:37 GMT".len(), "{date}");
    format!("{before}Date: <date>\r\n{after}")
}

#[test]
fn headers_come_in_the_order_of_the_real_one() {
    let servers = Servers::start().expect("a thread");
    let handle = servers.serve(loopback(), hello()).expect("served");
    let answer = ask(&mut connect(&handle), "GET / HTTP/1.0\r\n\r\n");
    assert_eq!(
        without_date(&answer).replace("HTTP/1.0 200", "HTTP/1.1 200"),
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: 1\r\nDate: <date>\r\nContent-Length: 2\r\n\r\n{}"
    );
}

#[test]
fn a_connection_is_kept_and_a_head_request_gets_no_body() {
    let servers = Servers::start().expect("a thread");
    let handle = servers.serve(loopback(), hello()).expect("served");
    let mut stream = connect(&handle);
    stream.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let answer =
        ask(&mut stream, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
    let (first, second) = answer.split_once("\r\n\r\n").expect("two answers");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.ends_with("Content-Length: 2"), "{first}");
    assert!(second.starts_with("HTTP/1.1 404 Not Found\r\n"), "{second}");
    assert!(second.ends_with("\r\n\r\n404 page not found\n"), "{second}");
}

#[test]
fn a_dropped_handle_frees_the_port_and_cuts_connections() {
    let servers = Servers::start().expect("a thread");
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for _ in 0..200 {
        let handle = servers.serve(bind(address).expect("free"), hello()).expect("served");
        address = handle.address().expect("TCP");
        let mut idle = connect(&handle);
        drop(handle);
        assert_eq!(rest(&mut idle), "");
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_drained_server_finishes_what_it_began() {
    let servers = Servers::start().expect("a thread");
    let (begun, asked) = channel();
    let service = Service::new(move |_| {
        begun.send(()).expect("heard");
        thread::sleep(Duration::from_millis(200));
        Response::text(200, "done")
    });
    let handle = servers.serve(loopback(), service.slow()).expect("served");
    let (mut idle, mut busy) = (connect(&handle), connect(&handle));
    busy.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    asked.recv().expect("asked");
    handle.drain(Duration::from_secs(10));
    assert!(rest(&mut busy).ends_with("\r\n\r\ndone\n"));
    assert_eq!(rest(&mut idle), "");
}

#[test]
fn a_slow_answer_holds_up_nobody() {
    let servers = Servers::start().expect("a thread");
    let (finish, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let service = Service::new(move |_| {
        let _ = wait.lock().expect("sound").recv();
        Response::text(200, "slow")
    });
    let slow = servers.serve(loopback(), service.slow()).expect("served");
    let quick = servers.serve(loopback(), hello()).expect("served");
    let mut waiting = connect(&slow);
    waiting.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    assert!(ask(&mut connect(&quick), "GET / HTTP/1.0\r\n\r\n").ends_with("{}"));
    finish.send(()).expect("waits");
    assert!(rest(&mut waiting).ends_with("slow\n"));
}

#[test]
fn clients_cannot_take_all_connections() {
    let servers = Servers::start().expect("a thread");
    let limits = Limits { connections: 4, ..Limits::default() };
    let handle = servers.serve(loopback(), hello().limits(limits)).expect("served");
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connect(&handle)).collect();
    assert!(ask(&mut connect(&handle), "GET / HTTP/1.0\r\n\r\n").ends_with("{}"));
    assert_eq!(rest(&mut silent[0]), "", "the oldest was closed");
    let last = silent.last_mut().expect("20");
    assert!(ask(last, "GET / HTTP/1.0\r\n\r\n").ends_with("{}"), "the newest was not");
}

#[test]
fn slow_and_large_heads_end() {
    let servers = Servers::start().expect("a thread");
    let short = Duration::from_millis(100);
    let limits = Limits { head: short, answer: Duration::from_secs(20), ..Limits::default() };
    let handle = servers.serve(loopback(), hello().limits(limits)).expect("served");
    let begun = Instant::now();
    let mut slow = connect(&handle);
    slow.write_all(b"GET / HT").expect("sent");
    rest(&mut slow);
    assert!(begun.elapsed() >= short);
    let mut large = connect(&handle);
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "a".repeat(64 << 10));
    // what is sent after the answer may be refused
    let _ = large.write_all(head.as_bytes());
    let mut status = [0; 12];
    large.read_exact(&mut status).expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 431");
}

#[test]
fn a_client_that_takes_no_answer_is_left() {
    let servers = Servers::start().expect("a thread");
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let service = Service::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Response::new(200, "text/plain", vec![b'a'; 64 << 20])
    });
    let limits = Limits { answer: Duration::from_millis(200), ..Limits::default() };
    let handle = servers.serve(loopback(), service.limits(limits)).expect("served");
    let mut stream = connect(&handle);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    thread::sleep(Duration::from_millis(600));
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert!(got.len() < 64 << 20, "{} bytes", got.len());
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn a_socket_in_the_file_system() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let servers = Servers::start().expect("a thread");
    let listener = UnixListener::bind(&path).expect("bound");
    let handle = servers.serve(listener, hello()).expect("served");
    assert_eq!(handle.address(), None);
    let mut stream = UnixStream::connect(&path).expect("connected");
    assert!(ask(&mut stream, "GET / HTTP/1.0\r\n\r\n").ends_with("{}"));
}

#[test]
fn an_unspecified_address_takes_both_families_and_a_single_one_its_own() {
    let servers = Servers::start().expect("a thread");
    let both = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).expect("a port");
    let handle = servers.serve(both, hello()).expect("served");
    let port = handle.address().expect("TCP").port();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        if ip.is_ipv6() && bind(SocketAddr::new(ip, 0)).is_err() {
            continue; // this machine has no IPv6
        }
        let mut stream = TcpStream::connect((ip, port)).expect("connected");
        assert!(ask(&mut stream, "GET / HTTP/1.0\r\n\r\n").ends_with("{}"), "{ip}");
    }
    drop(handle);
    let v4 = bind_one_family(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).expect("free");
    let Ok(_v6) = bind_one_family(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) else {
        assert!(bind(SocketAddr::from((Ipv6Addr::LOCALHOST, 0))).is_err(), "each its own");
        return;
    };
    drop(v4);
}

#[test]
fn servers_outlive_their_first_handle_and_end_with_the_last() {
    let servers = Servers::start().expect("a thread");
    let handle = servers.serve(loopback(), hello()).expect("served");
    drop(servers);
    assert!(ask(&mut connect(&handle), "GET / HTTP/1.0\r\n\r\n").ends_with("{}"));
}

#[test]
fn an_outlet_moves_when_its_new_place_can_be_had() {
    let servers = Servers::start().expect("a thread");
    let answers = |address: SocketAddr| {
        TcpStream::connect(address).is_ok_and(|mut s| ask(&mut s, "GET / HTTP/1.0\r\n\r\n").ends_with("{}"))
    };
    let mut outlet = Outlet::new("a test", servers, hello());
    assert!(outlet.is_settled() && outlet.address().is_none(), "nowhere, as is wanted");
    // addresses that nobody else uses, with ports that are given to nobody who asks for any
    let process = u8::try_from(std::process::id() % 250).expect("below 250");
    let place = |host: u8, port: u16| SocketAddr::from(([127, 250, process, host], port));
    let (first, second) = (place(1, 10358), place(1, 10359));
    outlet.want(Some(first));
    assert!(!outlet.is_settled() && !answers(first), "wanting alone does nothing");
    outlet.settle().expect("free");
    assert!(outlet.is_settled() && answers(first));
    assert_eq!(outlet.address(), Some(first));

    let taken = TcpListener::bind(second).expect("free");
    outlet.want(Some(second));
    assert_eq!(outlet.settle().expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    assert!(!outlet.is_settled() && answers(first), "still at the old place");
    drop(taken);
    outlet.settle().expect("free by now");
    assert!(answers(second) && !answers(first));

    // All addresses of the port that it has: the old one goes first.
    let wide = SocketAddr::from((Ipv4Addr::UNSPECIFIED, second.port()));
    outlet.want(Some(wide));
    outlet.settle().expect("its own port is no obstacle");
    assert!(answers(place(2, second.port())));
    outlet.want(Some(second));
    outlet.settle().expect("free");
    assert!(answers(second));
    outlet.want(None);
    outlet.settle().expect("nothing to be had");
    assert!(outlet.is_settled() && outlet.address().is_none());
    outlet.want(Some(first));
    outlet.settle().expect("free");
    drop(outlet);
    assert!(!answers(first));
}
