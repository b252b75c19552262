//! The table of core spec 7.8, and hosts that do not let themselves be set.

use std::fs;
use std::path::Path;
use std::time::Duration;

use proxier_sys::netns;

use super::*;

const NOTHING: Conntrack = Conntrack {
    max_per_core: None,
    min: 0,
    tcp_established_timeout: None,
    tcp_close_wait_timeout: None,
    tcp_be_liberal: false,
    udp_timeout: None,
    udp_stream_timeout: None,
};

#[test]
fn connections_by_cores() {
    for (cores, per_core, min, max) in [
        (2, 32768, 131_072, Some(131_072)),
        (8, 32768, 131_072, Some(262_144)),
        (512, 32768, 0, Some(1_048_576)),
        (512, 32768, 4_000_000, Some(1_048_576)),
        (2, 0, 123_456, None),
        (2, 1000, 2_000_000, Some(2_000_000)),
        (0, 32768, 0, None),
        (u32::MAX, u32::MAX, 0, Some(1_048_576)),
        (32, 32768, 0, Some(1_048_576)),
    ] {
        let settings = Conntrack { max_per_core: Some(per_core), min, ..NOTHING };
        assert_eq!(connections(&settings, cores), max, "{cores} cores, {per_core} each, {min} at least");
    }
    assert_eq!(connections(&NOTHING, 8), None);
}

fn keys(settings: &Conntrack) -> Vec<(String, u64)> {
    wanted(settings, 8).iter().map(|w| (w.setting.to_string(), w.value)).collect()
}

#[test]
fn every_row_of_the_table() {
    assert_eq!(keys(&NOTHING), []);
    let defaults = Conntrack {
        max_per_core: Some(32768),
        min: 131_072,
        tcp_established_timeout: Some(Duration::from_secs(86_400)),
        tcp_close_wait_timeout: Some(Duration::from_secs(3600)),
        ..NOTHING
    };
    let in_force = |key: &str| format!("/proc/sys/net/netfilter/{key}");
    let mut expected = vec![
        (in_force("nf_conntrack_max"), 262_144),
        ("/sys/module/nf_conntrack/parameters/hashsize".to_owned(), 65_536),
        (in_force("nf_conntrack_tcp_timeout_established"), 86_400),
        (in_force("nf_conntrack_tcp_timeout_close_wait"), 3600),
    ];
    assert_eq!(keys(&defaults), expected);
    let all = Conntrack {
        tcp_be_liberal: true,
        udp_timeout: Some(Duration::from_millis(30_999)),
        udp_stream_timeout: Some(Duration::from_millis(500)),
        ..defaults
    };
    expected.push((in_force("nf_conntrack_udp_timeout"), 30));
    expected.push((in_force("nf_conntrack_udp_timeout_stream"), 0));
    expected.push((in_force("nf_conntrack_tcp_be_liberal"), 1));
    assert_eq!(keys(&all), expected);
    let zero = Conntrack { udp_timeout: Some(Duration::ZERO), ..NOTHING };
    assert_eq!(keys(&zero), [], "0 leaves it alone");
}

struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    fn new(files: &[(&str, &str)]) -> Self {
        let fake = Self { folder: tempfile::tempdir().expect("a folder") };
        for (name, text) in files {
            let path = fake.path(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(Path::new(name))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("there")
    }

    fn host(&self) -> Host {
        Host::under(self.path("proc"), self.path("sys"))
    }
}

const MAX_FILE: &str = "proc/net/netfilter/nf_conntrack_max";
const HASH_FILE: &str = "sys/module/nf_conntrack/parameters/hashsize";

fn limit(max: u32) -> Vec<Wanted> {
    wanted(&Conntrack { max_per_core: Some(max), ..NOTHING }, 1)
}

#[test]
fn only_what_differs_is_written() {
    let fake = Fake::new(&[(MAX_FILE, "262144\n"), (HASH_FILE, "65536\n")]);
    let done = |max| -> Vec<Done> {
        apply(&fake.host(), &limit(max)).into_iter().map(|o| o.result.expect("set")).collect()
    };
    assert_eq!(done(262_144), [Done::AsItWas, Done::AsItWas]);
    assert_eq!(fake.read(MAX_FILE), "262144\n", "not even written again");
    assert_eq!(done(524_288), [Done::Written { before: 262_144 }, Done::Written { before: 65_536 }]);
    assert_eq!(
        [fake.read(MAX_FILE), fake.read(HASH_FILE)].map(|text| text.trim().to_owned()),
        ["524288", "131072"]
    );
    assert_eq!(
        done(4000),
        [Done::Written { before: 524_288 }, Done::AsItWas],
        "lowered, too; a larger table does no harm"
    );
}

#[test]
fn a_missing_module_is_named_and_the_rest_is_set() {
    let fake = Fake::new(&[("proc/net/netfilter/nf_conntrack_udp_timeout", "30\n"), (HASH_FILE, "16\n")]);
    let settings =
        Conntrack { max_per_core: Some(1000), udp_timeout: Some(Duration::from_secs(9)), ..NOTHING };
    let outcomes = apply(&fake.host(), &wanted(&settings, 1));
    let errors: Vec<_> = outcomes.iter().map(|o| o.result.as_ref().map_err(ToString::to_string)).collect();
    assert_eq!(errors[0], Err("it does not exist: the module nf_conntrack is not loaded".to_owned()));
    assert_eq!(errors[1], Err("/proc/sys/net/netfilter/nf_conntrack_max could not be set".to_owned()));
    assert_eq!(errors[2], Ok(&Done::Written { before: 30 }));
    assert_eq!(fake.read(HASH_FILE), "16\n");
    assert!(outcomes.iter().filter_map(|o| o.result.as_ref().err()).all(SettingError::is_tolerable));
    assert!(!fake.path(MAX_FILE).exists(), "nothing is made");
}

#[test]
fn a_value_that_is_none_is_no_excuse() {
    let fake = Fake::new(&[(MAX_FILE, "many\n"), (HASH_FILE, "16\n")]);
    let outcomes = apply(&fake.host(), &limit(1000));
    let error = outcomes[0].result.as_ref().expect_err("not a number");
    assert!(!error.is_tolerable(), "{error}");
}

#[test]
fn cores_are_those_that_are_online() {
    for (list, cores) in [("0\n", 1), ("0-1\n", 2), ("0-3,6,8-9\n", 7)] {
        assert_eq!(Fake::new(&[("sys/devices/system/cpu/online", list)]).host().cores(), cores);
    }
    let usable = std::thread::available_parallelism().expect("known").get();
    for files in [&[("sys/devices/system/cpu/online", "all of them")][..], &[]] {
        assert_eq!(Fake::new(files).host().cores() as usize, usable);
    }
    assert!(Host::new().cores() >= 1);
}

/// In a network namespace that is not the host's own, some settings can be written and some cannot.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_kernel_takes_what_belongs_to_the_namespace_and_refuses_the_rest() {
    netns::enter_new().expect("these tests need root");
    let host = Host::new();
    let now: u32 = Sysctl::new().read_number("net/netfilter/nf_conntrack_max").expect("there");
    let settings = Conntrack {
        max_per_core: Some(now + 1),
        tcp_established_timeout: Some(Duration::from_secs(4321)),
        tcp_close_wait_timeout: Some(Duration::from_secs(321)),
        udp_timeout: Some(Duration::from_secs(21)),
        udp_stream_timeout: Some(Duration::from_secs(121)),
        tcp_be_liberal: true,
        ..NOTHING
    };
    let mut outcomes = apply(&host, &wanted(&settings, 1)).into_iter();
    let max = outcomes.next().expect("one");
    assert!(matches!(max.result, Err(SettingError::Denied(_))), "{max:?}");
    assert!(matches!(outcomes.next().expect("one").result, Err(SettingError::After(_))));
    assert_eq!(outcomes.len(), 5);
    for outcome in outcomes {
        assert!(matches!(outcome.result, Ok(Done::Written { .. })), "{outcome:?}");
    }
    for outcome in apply(&host, &wanted(&settings, 1)).into_iter().skip(2) {
        assert!(matches!(outcome.result, Ok(Done::AsItWas)), "{outcome:?}");
    }
    let seconds: u32 =
        Sysctl::new().read_number("net/netfilter/nf_conntrack_udp_timeout_stream").expect("there");
    assert_eq!(seconds, 121);
}
