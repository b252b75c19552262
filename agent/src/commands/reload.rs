//! The configuration, read again while the program runs: what can change does, the rest is told and stays.

use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use proxier_core::ids::IpFamily;

use super::setup::Setup;
use crate::cli::ConfigFlags;
use crate::config::{Change, Config, Difference};
use crate::file_watch;
use crate::service_manager::Notifier;
use crate::source::StopSignal;
use crate::sync::{Message, Settings};
use crate::{registry, telemetry};

/// What reads the configuration again. Clones are the same.
#[derive(Clone)]
pub(super) struct Reload(Arc<Mutex<State>>);

struct State {
    flags: ConfigFlags,
    /// What the program was started with.
    started: Config,
    /// What was read last and was good.
    last: Config,
    settings: Settings,
    families: Vec<IpFamily>,
    to_loop: SyncSender<Message>,
    notifier: Notifier,
    /// Who takes over what is not the loop's.
    surroundings: Option<Surroundings>,
    /// Settings of the backend changed that could not be taken so far, since others beside them take a restart.
    owed: bool,
}

/// A configuration that was taken.
pub(super) struct Taken<'a> {
    /// The one before.
    pub(super) before: &'a Config,
    /// What it says now.
    pub(super) now: &'a Config,
    /// Nothing of it waits for a restart.
    pub(super) whole: bool,
}

/// Takes over what is not the loop's: servers, settings of the host.
pub(super) type Surroundings = Box<dyn Fn(Taken<'_>) + Send>;

/// What a difference leads to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Live,
    Instances,
    Restart(String),
}

impl Reload {
    /// Reads what `flags` name again when asked to, and tells the loop. These families are served.
    pub(super) fn new(
        flags: &ConfigFlags,
        setup: &Setup,
        families: Vec<IpFamily>,
        to_loop: SyncSender<Message>,
        notifier: Notifier,
    ) -> Self {
        let (started, last) = (setup.config.clone(), setup.config.clone());
        let (flags, settings) = (flags.clone(), setup.settings());
        Self(Arc::new(Mutex::new(State {
            flags,
            started,
            last,
            settings,
            families,
            to_loop,
            notifier,
            surroundings: None,
            owed: false,
        })))
    }

    /// Reads again whenever the content of the file is another one than before, if there is a file. `known` is what was there before it was read
    /// at the start, so that a change in between is noticed.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn follow(
        &self,
        file: Option<&Path>,
        known: Vec<u8>,
        stop: &StopSignal,
    ) -> std::io::Result<()> {
        let Some(file) = file else { return Ok(()) };
        let reload = self.clone();
        file_watch::watch(file, known, stop, move |_| reload.now("the file changed")).map(drop)
    }

    /// Has these take over what is not the loop's: at once, if it was read again before they were there.
    pub(super) fn told_to(&self, surroundings: Surroundings) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.surroundings = Some(surroundings);
        if !state.started.difference(&state.last).is_empty() {
            state.tell_surroundings(&state.started);
        }
    }

    /// Reads again.
    pub(super) fn now(&self, cause: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).read(cause);
    }
}

impl State {
    fn read(&mut self, cause: &str) {
        self.notifier.reloading();
        match Setup::again(&self.flags, &self.started.mode) {
            Ok(setup) => self.take(cause, setup),
            Err(error) => {
                for line in super::explain(&error).lines() {
                    tracing::error!(cause, reason = %line, "configuration refused; the one before stays in force");
                }
            }
        }
        // Also when nothing changed: the loop tells the service manager that the reload is over.
        let _ = self.to_loop.send(Message::Settings(Box::new(self.settings.clone())));
    }

    fn take(&mut self, cause: &str, setup: Setup) {
        let differences = self.last.difference(&setup.config);
        for finding in setup.config.warnings() {
            if !self.last.warnings().contains(finding) {
                tracing::warn!(setting = %finding.path, origin = %finding.origin, reason = %finding.message, "configuration");
            }
        }
        if let Some(named) = &setup.moved {
            let (running, named) = (&self.started.mode, named.join(", "));
            tracing::warn!(running = %running, named = %named, "another mode takes a restart; the one that runs stays");
        }
        if differences.is_empty() {
            tracing::info!(cause, "configuration read again: nothing changed");
        }
        let mut instances = false;
        for difference in &differences {
            let Difference { path, old, new, .. } = difference;
            match step(difference, &self.started) {
                Step::Live => tracing::info!(setting = %path, old = %old, new = %new, "setting changed"),
                Step::Instances => {
                    instances = true;
                    tracing::info!(setting = %path, old = %old, new = %new, "setting changed; rules are compared");
                }
                Step::Restart(reason) if self.is_as_started(path, &setup.config) => {
                    tracing::info!(setting = %path, value = %new, reason, "setting is again what runs");
                }
                Step::Restart(reason) => {
                    tracing::warn!(setting = %path, old = %old, new = %new, reason, "setting takes a restart; the old value stays in force");
                }
            }
        }
        if self.last.logging.level != setup.config.logging.level
            && let Err(error) = telemetry::set_filter(&setup.config.logging.level)
        {
            tracing::warn!(error = %error, "log level");
        }
        self.settings = setup.settings();
        self.owed |= instances;
        if self.owed && self.fixed_are_as_started(&setup.config) {
            self.owed = false;
            let all = setup.instances().into_iter();
            let ours = all.filter(|i| self.families.contains(&i.family())).collect();
            let _ = self.to_loop.send(Message::Instances(ours));
        }
        let before = std::mem::replace(&mut self.last, setup.config);
        if !differences.is_empty() {
            self.tell_surroundings(&before);
        }
    }

    fn tell_surroundings(&self, before: &Config) {
        let waits = |d: &Difference| matches!(step(d, &self.started), Step::Restart(_));
        let whole = !self.started.difference(&self.last).iter().any(waits);
        if let Some(surroundings) = &self.surroundings {
            surroundings(Taken { before, now: &self.last, whole });
        }
    }

    fn is_as_started(&self, path: &str, now: &Config) -> bool {
        !self.started.difference(now).iter().any(|d| d.path == path)
    }

    /// No value is another one under which something would stay in the kernel.
    fn fixed_are_as_started(&self, now: &Config) -> bool {
        self.started.difference(now).iter().all(|d| fixed(&d.path, &self.started.mode).is_none())
    }
}

fn step(difference: &Difference, started: &Config) -> Step {
    let path = &difference.path;
    match difference.change {
        Change::Live => Step::Live,
        Change::Restart(reason) => Step::Restart(reason.to_owned()),
        Change::Instances => match fixed(path, &started.mode) {
            Some(reason) => Step::Restart(reason),
            // A section of a mode that does not run.
            None if !path.starts_with(&format!("{}.", started.mode)) => Step::Live,
            None => Step::Instances,
        },
    }
}

/// Why a setting of the mode that runs cannot change while it does: under its old value something would stay in the kernel.
fn fixed(path: &str, mode: &str) -> Option<String> {
    let key = path.strip_prefix(mode)?.strip_prefix('.')?;
    let entry = registry::BACKENDS.iter().find(|b| b.section.name == mode)?;
    entry
        .fixed
        .contains(&key)
        .then(|| "what stands under the old value must be removed with cleanup first".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    const HEAD: &str = "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\nhostnameOverride: n1\n";

    struct Case {
        folder: tempfile::TempDir,
        reload: Reload,
        told: Receiver<Message>,
    }

    impl Case {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let config = folder.path().join("c.yaml");
            fs::write(&config, format!("{HEAD}{text}")).expect("written");
            let flags = ConfigFlags { config: Some(config), given: Vec::new() };
            let setup = Setup::from_flags(&flags).expect("good");
            let (to_loop, told) = sync_channel(8);
            let families = vec![IpFamily::Ipv4];
            let reload = Reload::new(&flags, &setup, families, to_loop, Notifier::default());
            Self { folder, reload, told }
        }

        /// What the loop is told of another content: settings, and the families of new instances.
        fn read(&self, text: &str) -> (Settings, Option<Vec<IpFamily>>) {
            fs::write(self.folder.path().join("c.yaml"), format!("{HEAD}{text}")).expect("written");
            self.reload.now("a test");
            let mut families = None;
            loop {
                match self.told.try_recv().expect("settings at least") {
                    Message::Settings(settings) => return (*settings, families),
                    Message::Instances(instances) => {
                        families = Some(instances.iter().map(|i| i.family()).collect());
                    }
                    _ => panic!("something else"),
                }
            }
        }
    }

    #[test]
    fn what_is_the_same_changes_nothing() {
        let case = Case::new("clusterCIDR: 10.244.0.0/16\n");
        let before = case.read("clusterCIDR: 10.244.0.0/16\n");
        assert_eq!(before, case.read("# a word\nclusterCIDR: '10.244.0.0/16'\n"));
        assert_eq!(before.1, None);
    }

    #[test]
    fn what_is_refused_leaves_the_last_good_state() {
        let case = Case::new("verifyPeriod: 10s\n");
        let good = case.read("verifyPeriod: 20s\n");
        assert_eq!(good.0.policy.verify_interval, Some(std::time::Duration::from_secs(20)));
        assert_eq!(case.read("verifyPeriod: soon\n"), good);
        assert_eq!(case.read(": nothing that YAML knows: ["), good);
        assert_ne!(case.read("verifyPeriod: 30s\n"), good);
    }

    /// Also what was read before they were there.
    #[test]
    fn surroundings_are_told_what_changed_and_whether_that_is_all() {
        let case = Case::new("healthzBindAddress: 127.0.0.1:1\n");
        case.read("healthzBindAddress: 127.0.0.1:2\n");
        let (tell, told) = std::sync::mpsc::channel();
        case.reload.told_to(Box::new(move |Taken { before, now, whole }| {
            let port = |c: &Config| c.healthz_bind_address.map(|a| a.port());
            let _ = tell.send((port(before), port(now), whole));
        }));
        let expect = |all: &[_]| assert_eq!(told.try_iter().collect::<Vec<_>>(), all);
        expect(&[(Some(1), Some(2), true)]);
        case.read("# the same\nhealthzBindAddress: 127.0.0.1:2\n");
        case.read("healthzBindAddress: nonsense\n");
        expect(&[]);
        case.read("healthzBindAddress: 127.0.0.1:3\nbindAddressHardFail: true\n");
        case.read("healthzBindAddress: 127.0.0.1:3\n");
        expect(&[(Some(2), Some(3), false), (Some(3), Some(3), true)]);
    }

    #[test]
    fn live_settings_change_and_others_stay() {
        let case = Case::new("clusterCIDR: 10.244.0.0/16\n");
        let (settings, instances) =
            case.read("serviceCIDRs: [10.96.0.0/16]\nnode: {zone: a}\noomScoreAdj: 3\n");
        assert_eq!(settings.traffic.service_cidrs.len(), 1);
        assert_eq!(settings.node.zone.as_deref(), Some("a"));
        assert_eq!(instances, None);
    }

    #[cfg(all(feature = "nftables", feature = "iptables"))]
    #[test]
    fn a_backends_options_take_new_instances_of_the_families_that_are_served() {
        let case = Case::new("mode: nftables\n");
        assert_eq!(case.read("mode: nftables\nnftables: {layout: chains}\n").1, Some(vec![IpFamily::Ipv4]));
        assert_eq!(
            case.read("mode: nftables\nnftables: {layout: chains}\niptables: {masqueradeBit: 3}\n").1,
            None
        );
        let table = "mode: nftables\nnftables: {layout: maps, table: other}\n";
        assert_eq!(case.read(table).1, None, "the table under the old name would stay");
        assert_eq!(case.read("mode: nftables\nnftables: {layout: maps}\n").1, Some(vec![IpFamily::Ipv4]));
    }

    #[cfg(all(feature = "nftables", feature = "iptables"))]
    #[test]
    fn another_mode_is_for_the_next_start_and_the_rest_is_read_for_the_one_that_runs() {
        let case = Case::new("mode: nftables\n");
        let before = case.read("mode: nftables\nserviceCIDRs: [10.96.0.0/16]\n");
        let now =
            case.read("mode: iptables\nserviceCIDRs: [10.96.0.0/16]\niptables: {masqueradeAll: true}\n");
        assert_eq!(now, before, "nftables goes on as it is");
        let (settings, _) = case.read("mode: iptables\nnftables: {masqueradeAll: true}\n");
        assert!(settings.traffic.masquerade_all);
    }
}
