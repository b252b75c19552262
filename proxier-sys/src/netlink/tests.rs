//! The writer against a real nf_tables, with batches made by hand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::netns;
use crate::version::KernelVersion;

const NEW_TABLE: u8 = 0;
const GET_TABLE: u8 = 1;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const GET_CHAIN: u8 = 4;
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const IPV4: u8 = 2;

fn nft(message: u8) -> MessageType {
    MessageType::new(subsystem::NFTABLES, message)
}

fn add_table(batch: &mut Batch, name: &str) -> MessageIndex {
    batch.message(NEW_TABLE, flags::CREATE, IPV4, |w| w.put_str(TABLE_NAME, name))
}

fn add_chain(batch: &mut Batch, table: &str, name: &str) -> MessageIndex {
    batch.message(NEW_CHAIN, flags::CREATE, IPV4, |w| {
        w.put_str(CHAIN_TABLE, table);
        w.put_str(CHAIN_NAME, name);
    })
}

fn chains(socket: &mut NetfilterSocket) -> Vec<(String, String)> {
    let objects = socket.dump(nft(GET_CHAIN), IPV4, |_| {}).unwrap();
    let text = |payload: &[u8], kind| {
        let attr = AttrIter::new(payload).map(Result::unwrap).find(|attr| attr.kind == kind).unwrap();
        attr.str().unwrap().to_owned()
    };
    objects
        .iter()
        .map(|object| {
            assert_eq!((object.msg_type, object.family), (nft(NEW_CHAIN), IPV4));
            (text(&object.payload, CHAIN_TABLE), text(&object.payload, CHAIN_NAME))
        })
        .collect()
}

fn chain_name(i: usize) -> String {
    format!("chain-{i}")
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_batch_commits_and_dumps_back() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    add_chain(&mut batch, "t", "a");
    add_chain(&mut batch, "t", "b");
    assert!(chains(&mut socket).is_empty());
    let answer = socket.send_batch(&batch).unwrap();
    assert!(answer.is_committed(), "{answer:?}");
    let expected = [("t".to_owned(), "a".to_owned()), ("t".to_owned(), "b".to_owned())];
    assert_eq!(chains(&mut socket), expected);
    assert!(socket.send_batch(&Batch::new(subsystem::NFTABLES)).unwrap().is_committed());
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn refusals_name_their_messages_and_nothing_is_committed() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    add_chain(&mut batch, "t", "a");
    let orphan = add_chain(&mut batch, "no such table", "b");
    add_chain(&mut batch, "t", "c");
    let nameless = batch.message(NEW_TABLE, flags::CREATE, IPV4, |_| {});
    let answer = socket.send_batch(&batch).unwrap();
    let refused: Vec<_> = answer.refused.iter().map(|r| (r.index, errno_name(r.errno))).collect();
    assert_eq!(refused, [(orphan, "ENOENT".to_owned()), (nameless, "EINVAL".to_owned())]);
    // The table's name is the first attribute: behind 16 bytes of header and 4 of nfgenmsg.
    assert_eq!(answer.refused[0].offset, Some(20));
    assert!(chains(&mut socket).is_empty());

    // The socket stays usable, and the refusals do not show up in the next answer.
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    assert!(socket.send_batch(&batch).unwrap().is_committed());
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_kernels_words_reach_the_caller() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let long = "x".repeat(300); // the kernel's policy allows 255
    let error = socket.request(nft(GET_TABLE), 0, IPV4, |w| w.put_str(TABLE_NAME, &long)).unwrap_err();
    assert!(matches!(&error, NetlinkError::Refused { message: Some(_), .. }), "{error:?}");

    let mut batch = Batch::new(subsystem::NFTABLES);
    let bad = batch.message(NEW_TABLE, flags::CREATE, IPV4, |w| w.put_str(TABLE_NAME, &long));
    let answer = socket.send_batch(&batch).unwrap();
    assert_eq!(answer.refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [bad]);
    // Before Linux 6.10 policy errors inside a batch carry no words.
    if KernelVersion::running().unwrap() >= KernelVersion::new(6, 10, 0) {
        assert!(answer.refused[0].message.is_some(), "{answer:?}");
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_refusal_of_the_batch_itself_is_told_apart() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let error = socket.send_batch(&Batch::new(200)).unwrap_err();
    assert!(matches!(error, NetlinkError::BatchRefused { .. }), "{error:?}");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_batch_beyond_the_systems_limit_is_one_send() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    let comment = "x".repeat(120);
    for i in 0..20_000 {
        batch.message(NEW_CHAIN, flags::CREATE, IPV4, |w| {
            w.put_str(CHAIN_TABLE, "t");
            w.put_str(CHAIN_NAME, &chain_name(i));
            w.put_bytes(12, comment.as_bytes()); // NFTA_CHAIN_USERDATA
        });
    }
    assert!(batch.byte_len() > 3_000_000);
    assert!(socket.send_batch(&batch).unwrap().is_committed());
    assert_eq!(chains(&mut socket).len(), 20_000);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn thousands_of_refusals_are_all_read() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    for i in 0..20_000 {
        add_chain(&mut batch, "none", &chain_name(i));
    }
    let answer = socket.send_batch(&batch).unwrap();
    assert_eq!(answer.refused.len(), 20_000);
    assert!(answer.refused.iter().enumerate().all(|(i, refused)| refused.index.get() == i));
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn an_overflow_of_refusals_is_reported_with_what_was_read_and_survived() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    socket.limit_answers(0);
    let mut batch = Batch::new(subsystem::NFTABLES);
    for i in 0..20_000 {
        add_chain(&mut batch, "none", &chain_name(i));
    }
    match socket.send_batch(&batch).unwrap_err() {
        NetlinkError::Overflow { refused } => {
            assert!((1..20_000).contains(&refused.len()), "{}", refused.len());
            assert_eq!(refused[0].index.get(), 0);
        }
        other => panic!("{other:?}"),
    }
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    add_chain(&mut batch, "t", "a");
    assert!(socket.send_batch(&batch).unwrap().is_committed());
    assert_eq!(chains(&mut socket).len(), 1);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_get_answers_with_the_object_or_not_found() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    assert!(socket.send_batch(&batch).unwrap().is_committed());

    let found = socket.request(nft(GET_TABLE), 0, IPV4, |w| w.put_str(TABLE_NAME, "t")).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].msg_type, nft(NEW_TABLE));
    let error = socket.request(nft(GET_TABLE), 0, IPV4, |w| w.put_str(TABLE_NAME, "u")).unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
    assert_eq!(error.errno_name().as_deref(), Some("ENOENT"));
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn existing_objects_are_told_apart() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    batch.message(NEW_TABLE, flags::CREATE | flags::EXCL, IPV4, |w| w.put_str(TABLE_NAME, "t"));
    assert!(socket.send_batch(&batch).unwrap().is_committed());
    let answer = socket.send_batch(&batch).unwrap();
    assert_eq!(errno_name(answer.refused[0].errno), "EEXIST");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_dump_beside_a_writer_is_consistent_or_says_that_it_is_not() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut writer = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    for i in 0..2_000 {
        add_chain(&mut batch, "t", &chain_name(i));
    }
    assert!(socket.send_batch(&batch).unwrap().is_committed());
    // Every batch renews all 2,000 chains under other names: a dump that mixes two states has another count.
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let dumps: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                let mut batch = Batch::new(subsystem::NFTABLES);
                batch.message(DELETE_TABLE, 0, IPV4, |w| w.put_str(TABLE_NAME, "t"));
                add_table(&mut batch, "t");
                for i in 0..2_000 {
                    add_chain(&mut batch, "t", &format!("round-{round}-{i}"));
                }
                assert!(writer.send_batch(&batch).unwrap().is_committed());
            }
        });
        let mut dumps = Vec::new();
        while dumps.len() < 30 || (rounds.load(Ordering::Relaxed) < 30 && dumps.len() < 10_000) {
            dumps.push(socket.dump(nft(GET_CHAIN), IPV4, |_| {}).map(|objects| objects.len()));
        }
        stop.store(true, Ordering::Relaxed);
        dumps
    });
    for dump in dumps {
        match dump {
            Ok(objects) => assert_eq!(objects, 2_000),
            Err(error) => assert!(error.is_busy(), "{error:?}"),
        }
    }
    assert_eq!(chains(&mut socket).len(), 2_000);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_transaction_makes_a_generation_and_a_dump_none() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let before = socket.ruleset_generation().unwrap();
    assert!(socket.dump(nft(GET_CHAIN), IPV4, |_| {}).unwrap().is_empty());
    assert_eq!(socket.ruleset_generation().unwrap(), before);
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    assert!(socket.send_batch(&batch).unwrap().is_committed());
    assert_eq!(socket.ruleset_generation().unwrap(), before + 1);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_dump_that_never_finds_a_quiet_moment_says_so() {
    netns::enter_new().unwrap();
    let mut socket = NetfilterSocket::open().unwrap();
    let mut writer = NetfilterSocket::open().unwrap();
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "t");
    for i in 0..20_000 {
        add_chain(&mut batch, "t", &chain_name(i));
    }
    assert!(socket.send_batch(&batch).unwrap().is_committed());
    let mut batch = Batch::new(subsystem::NFTABLES);
    add_table(&mut batch, "u");
    batch.message(DELETE_TABLE, 0, IPV4, |w| w.put_str(TABLE_NAME, "u"));

    let stop = AtomicBool::new(false);
    let interrupted = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(writer.send_batch(&batch).unwrap().is_committed());
            }
        });
        let mut dumps = (0..100).map(|_| socket.dump(nft(GET_CHAIN), IPV4, |_| {}));
        let interrupted = dumps.find_map(Result::err);
        stop.store(true, Ordering::Relaxed);
        interrupted
    });
    assert!(matches!(interrupted, Some(NetlinkError::DumpInterrupted { .. })), "{interrupted:?}");
    assert_eq!(chains(&mut socket).len(), 20_000);
}
