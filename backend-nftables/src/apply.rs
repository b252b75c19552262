//! Hands a plan to the kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use proxier_core::backend::{ApplyReport, Progress, ProgressSink, Refused};
use proxier_core::ids::ServicePortName;
use proxier_sys::netlink::{NetfilterSocket, RefusedMessage, errno_name};

use crate::belief::Belief;
use crate::cold;
use crate::error::{Error, RefusedOp};
use crate::objects::{Op, Table};
use crate::plan::Plan;
use crate::text;
use crate::wire::{self, Encoded};

/// Emptied chains are deleted, and those that were busy tried again, after this long (nftables spec 6.3).
const LATER: Duration = Duration::from_secs(1);

/// Carries a plan out.
///
/// # Errors
/// What the kernel refused; then nothing of the plan is in force.
pub fn apply(
    socket: &mut NetfilterSocket,
    plan: Plan,
    told: ProgressSink<'_>,
) -> Result<(Belief, ApplyReport), Error> {
    let mut report = ApplyReport { operations: plan.ops.len(), ..ApplyReport::default() };
    let is_cold = !plan.cuts.is_empty() && plan.undo.is_empty();
    let progress = if is_cold { cold::progress(&plan) } else { Vec::new() };
    let mut before = 0;
    for (at, ops) in plan.transactions().enumerate() {
        if !ops.is_empty() {
            let encoded = wire::encode(&plan.table, ops)?;
            report.bytes += encoded.batch.byte_len();
            report.messages += encoded.batch.len();
            let answer = socket.send_batch(&encoded.batch)?;
            if !answer.is_committed() {
                if before > 0 {
                    take_back(socket, &plan);
                }
                return Err(refusal(&plan, before, &encoded, &answer.refused));
            }
        }
        before += ops.len();
        if let Some(ports) = progress.get(at) {
            let (ports, ports_all) = (*ports, plan.next.len());
            told(Progress { ports, ports_all, steps: at + 1, steps_all: progress.len() });
        }
    }
    let later = plan.later();
    let mut belief = plan.next;
    if !later.is_empty() {
        delete_later(socket, &plan.table, &later, &mut belief, &mut report)?;
    }
    report.follow_up = (!belief.doomed.is_empty()).then_some(LATER);
    Ok((belief, report))
}

/// Takes back the chains of the first transaction. Nothing leads there, so what cannot be taken back is only unexpected.
fn take_back(socket: &mut NetfilterSocket, plan: &Plan) {
    if plan.undo.is_empty() {
        return;
    }
    let answer = wire::encode(&plan.table, &plan.undo)
        .map_err(Error::from)
        .and_then(|encoded| Ok(socket.send_batch(&encoded.batch)?));
    match answer {
        Ok(answer) if answer.is_committed() => {}
        Ok(answer) => tracing::debug!(refused = answer.refused.len(), "new chains stay for now"),
        Err(error) => tracing::debug!(error = %error, "new chains stay for now"),
    }
}

/// Deletes emptied chains. What is busy stays on the list, what is gone already leaves it.
fn delete_later(
    socket: &mut NetfilterSocket,
    table: &Table,
    later: &[Op],
    belief: &mut Belief,
    report: &mut ApplyReport,
) -> Result<(), Error> {
    let encoded = wire::encode(table, later)?;
    let answer = match socket.send_batch(&encoded.batch) {
        Ok(answer) => answer,
        Err(error) => {
            tracing::debug!(error = %error, "emptied chains stay for now");
            report.cleanup_failures += 1;
            return Ok(());
        }
    };
    if answer.is_committed() {
        report.operations += later.len();
        report.messages += encoded.batch.len();
        report.bytes += encoded.batch.byte_len();
        for op in later {
            if let Op::DeleteChain(name) = op {
                belief.doomed.remove(name);
            }
        }
        return Ok(());
    }
    report.cleanup_failures += 1;
    for refused in answer.refused.iter().filter(|r| errno_name(r.errno) == "ENOENT") {
        if let Some(Op::DeleteChain(name)) = op_of(later, &encoded, refused) {
            belief.doomed.remove(name);
        }
    }
    Ok(())
}

fn op_of<'a>(ops: &'a [Op], encoded: &Encoded, refused: &RefusedMessage) -> Option<&'a Op> {
    encoded.owner.get(refused.index.get()).and_then(|i| ops.get(*i))
}

/// Names the operations and the service ports that were refused. `before` operations of the plan were in earlier transactions.
fn refusal(plan: &Plan, before: usize, encoded: &Encoded, refused: &[RefusedMessage]) -> Error {
    let mut ports: BTreeMap<ServicePortName, String> = BTreeMap::new();
    let mut shared = false;
    let mut first = None;
    for message in refused {
        let index = encoded.owner.get(message.index.get()).map(|i| before + i);
        let op = index.and_then(|i| plan.ops.get(i));
        let described = RefusedOp {
            op: op.map_or_else(|| "unknown operation".to_owned(), |op| text::op_text(&plan.table, op)),
            errno: message.errno,
            explanation: message.message.clone(),
        };
        match index.and_then(|i| plan.owners.get(i)).and_then(Option::as_ref) {
            Some(port) => {
                ports
                    .entry(port.name.clone())
                    .or_insert_with(|| format!("{}: {}", errno_name(described.errno), described.op));
            }
            None => shared = true,
        }
        first = first.or(Some(described));
    }
    let unknown = || RefusedOp { op: "the transaction".to_owned(), errno: 0, explanation: None };
    Error::Refused {
        first: Box::new(first.unwrap_or_else(unknown)),
        count: refused.len(),
        ports: ports.into_iter().map(|(port, reason)| Refused { port, reason }).collect(),
        shared,
    }
}

/// Asks the kernel whether it would take the plan. A batch without its end message is looked at like any other and then undone.
///
/// # Errors
/// What the kernel would refuse.
pub fn check(socket: &mut NetfilterSocket, plan: &Plan) -> Result<(), Error> {
    if plan.ops.is_empty() {
        return Ok(());
    }
    let encoded = wire::encode(&plan.table, &plan.ops)?;
    let answer = socket.check_batch(&encoded.batch)?;
    if answer.is_committed() { Ok(()) } else { Err(refusal(plan, 0, &encoded, &answer.refused)) }
}
