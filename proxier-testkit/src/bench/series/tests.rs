use std::collections::BTreeMap;

use super::*;

/// A kernel that takes every change at once, and remembers the last state of every slice.
#[derive(Default)]
struct Model {
    waiting: u64,
    slices: BTreeMap<(u32, u32), Part>,
    services: u64,
    deaf: bool,
}

impl Subject for Model {
    fn send(&mut self, changes: &[Change]) -> Result<(), Error> {
        for change in changes {
            match change {
                Change::Service(_) => (self.services, self.waiting) = (self.services + 1, self.waiting + 1),
                Change::ServiceGone(_) => {
                    (self.services, self.waiting) = (self.services - 1, self.waiting + 1);
                }
                Change::Slice(part) => {
                    let known = self.slices.insert((part.service, part.part), part.clone());
                    self.waiting += u64::from(known.is_some_and(|before| before != *part));
                }
                Change::SliceGone(part) => {
                    self.slices.remove(&(part.service, part.part));
                }
            }
        }
        Ok(())
    }

    fn next(&mut self, until: Instant) -> Result<Option<Synced>, Error> {
        let ports = std::mem::take(&mut self.waiting);
        if ports == 0 || self.deaf {
            std::thread::sleep(
                until.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)),
            );
            return Ok(None);
        }
        Ok(Some(Synced { at: Instant::now(), ports, messages: 4 * ports, bytes: 100 * ports }))
    }

    fn process(&self) -> Process {
        Process::own()
    }
}

fn measured(model: &mut Model, size: Size) -> Result<Outcome, Error> {
    let mut fleet = Fleet::new(size);
    let all: Vec<Change> = fleet.all().collect();
    model.send(&all)?;
    model.next(Instant::now())?;
    let start = Row {
        what: START.to_owned(),
        runs: 1,
        wall: Duration::ZERO,
        p99: Duration::ZERO,
        cpu: Duration::ZERO,
        peak_kib: 0,
        messages: 0,
        bytes: 0,
    };
    let arguments = Arguments::parse(["churn=1"])?;
    run(model, &mut fleet, (start, 0), &arguments, (5, Duration::ZERO))
}

#[test]
fn every_change_is_made_and_counted_and_the_cluster_is_whole_again() {
    let mut model = Model::default();
    let outcome = measured(&mut model, Size::new(2_000, 3)).unwrap();
    let names: Vec<&str> = outcome.changes.iter().map(|row| row.what.as_str()).collect();
    assert_eq!(names, [REPLACED, MORE, LESS, SERVICE_ADDED, SERVICE_REMOVED]);
    for row in &outcome.changes {
        assert_eq!((row.runs, row.messages, row.bytes), (5, 4, 100), "{}", row.what);
    }
    assert_eq!((outcome.rollout.runs, outcome.rollout.messages), (100, 400));
    let churn = outcome.churn.unwrap();
    assert_eq!(churn.changes, 20);
    assert!(churn.wall >= Duration::from_millis(900), "{:?}", churn.wall);
    assert_eq!((model.services, model.slices.len()), (2_000, 2_000));
}

#[test]
fn a_change_that_never_arrives_is_an_error() {
    let mut model = Model { deaf: true, ..Model::default() };
    let error = measured(&mut model, Size::new(100, 1)).unwrap_err().to_string();
    assert!(error.contains("one endpoint replaced"), "{error}");
}
