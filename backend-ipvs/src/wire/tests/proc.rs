//! The text listing.

use proxier_core::ids::{EndpointAddr, Port};

use crate::wire::DecodeError;
use crate::wire::proc::{Reading, read};

/// `cat /proc/net/ip_vs` on Linux 6.1, with a few connections.
const TEXT: &str = include_str!("ip_vs.txt");

#[test]
fn all_real_servers_are_read() {
    let services = read(TEXT).unwrap();
    let shown: Vec<_> = services
        .iter()
        .map(|(id, reals)| {
            let reals: Vec<_> = reals
                .iter()
                .map(|real| {
                    let server = EndpointAddr { ip: real.ip, port: Port::new(real.port).unwrap() };
                    let masq = if real.masquerades { "" } else { " not masquerading" };
                    format!("{server} weight {} {}+{}{masq}", real.weight, real.active, real.inactive)
                })
                .collect();
            (id.to_string(), reals)
        })
        .collect();
    let expected: [(&str, &[&str]); 5] = [
        ("10.96.10.2:443/UDP", &[]),
        ("[2001:db8::10]:2905/SCTP", &["[2001:db8:1::5]:2905 weight 1 0+0"]),
        (
            "10.96.0.10:53/TCP",
            &[
                "10.244.0.7:53 weight 1 1+0 not masquerading",
                "10.244.0.6:5353 weight 1 0+0",
                "10.244.0.5:5353 weight 0 0+0",
            ],
        ),
        ("10.96.0.11 port 0 tcp", &[]),
        ("firewall mark 7 (IPv4)", &[]),
    ];
    let expected = expected
        .map(|(id, reals)| (id.to_owned(), reals.iter().map(|real| (*real).to_owned()).collect::<Vec<_>>()));
    assert_eq!(shown, expected);
}

#[test]
fn nothing_is_an_empty_listing() {
    let headings: Vec<_> = TEXT.lines().take(3).collect();
    assert_eq!(read(&headings.join("\n")).unwrap(), []);
    assert_eq!(read("").unwrap(), []);
}

#[test]
fn it_may_come_in_pieces_that_end_anywhere() {
    let whole = read(TEXT).unwrap();
    for length in [1, 7, 64, 100] {
        let mut reading = Reading::default();
        TEXT.as_bytes().chunks(length).for_each(|piece| reading.push(piece).unwrap());
        assert_eq!(reading.end().unwrap(), whole, "{length}");
    }
    // A line is numbered from the beginning of the listing, not of its piece.
    let mut reading = Reading::default();
    reading.push(b"a\nb\nc\nTC").unwrap();
    let error = reading.push(b"P ! rr\n").unwrap_err();
    assert_eq!(error.to_string(), "line 4 of the listing of virtual servers: \"TCP ! rr\"");
    // What is no text is no line.
    assert!(read_bytes(b"a\nb\nc\nTCP \xff rr\n").is_err());
}

fn read_bytes(bytes: &[u8]) -> Result<(), DecodeError> {
    Reading::default().push(bytes)
}

#[test]
fn other_lines_are_named() {
    for line in [
        "  -> 0AF40005:14E9 Masq 1 0 0",
        "TCP",
        "TCP 0A60 rr",
        "TCP  0A60000A:0035 rr\n  -> 0AF40005:14E9      Masq    1",
    ] {
        let text = format!("a\nb\nc\n{line}");
        let error = read(&text).unwrap_err();
        assert!(matches!(error, DecodeError::Line { .. }), "{error}");
    }
    let error = read("a\nb\nc\nTCP ! rr").unwrap_err();
    assert_eq!(error.to_string(), "line 4 of the listing of virtual servers: \"TCP ! rr\"");
}
