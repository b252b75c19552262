//! Agents that end and start again. Rules stay in force meanwhile.

use super::script::{LASTING, Script, TCP, UDP, name, ways};

const BOTH: [&str; 2] = ["one", "three"];

/// Cases: nftables-12.11
pub(super) fn agents(script: &mut Script<'_>) -> anyhow::Result<()> {
    let mut sticky = script.service().on(&["one", "two", "three", "four"]);
    sticky.affinity = Some(600);
    script.put(&sticky)?;
    let home = |script: &Script<'_>| -> anyhow::Result<Vec<String>> {
        ways().into_iter().map(|way| Ok(name(script.call(way, TCP)?))).collect()
    };
    let before = home(script)?;
    let mut kept = Vec::new();
    for way in ways() {
        let (lasting, first) = script.stay(way, LASTING)?;
        kept.push((lasting, first));
    }

    let calling: &Script<'_> = script;
    let results = calling.under_calls(|_| {
        calling.cast.stop();
        calling.put_only(&sticky)?;
        calling.cast.start()?;
        calling.put(&sticky)
    })?;
    for (way, met) in results {
        // By TCP and by UDP the client has an endpoint each.
        let good = (1..=2).contains(&met.len())
            && met.keys().all(|s| ["one", "two", "three", "four"].contains(&s.as_str()));
        script.check(
            format!("while agents restart every connection is answered, by the client's endpoint: {way}"),
            good,
            format!("{met:?}"),
        );
    }
    script.last("after the restart", &mut kept);
    let after = home(script)?;
    script.check("clients stay with their endpoints over a restart", after == before, format!("{after:?}"));

    // What happened while no agent ran is made good when one starts.
    let mut shape = script.service().on(&["one"]);
    script.put(&shape)?;
    script.cast.stop();
    shape = shape.on(&BOTH);
    script.put_only(&shape)?;
    script.meets("no agent runs", &ways(), &[TCP], &["one"])?;
    script.cast.start()?;
    script.put(&shape)?;
    script.meets("agents run again", &ways(), &[TCP, UDP], &BOTH)?;
    script.last("after the second restart", &mut kept);
    Ok(())
}
