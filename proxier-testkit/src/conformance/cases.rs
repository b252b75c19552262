//! The corpus, walked.

use proxier_core::model::PerFamily;
use proxier_core::oracle::decide;

use super::walks::Walker;
use super::{Failure, Model as _, Subject, Tally, fresh};
use crate::corpus::{Case, Question};

/// Every packet of every case: the rules do what the case expects. Where the subject declares a gap, they do what the gap says.
///
/// # Errors
/// All packets that go elsewhere, with the way they went.
pub fn corpus<S: Subject>(subject: &S, cases: &[Case]) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for case in cases {
        tally.clusters += 1;
        let mut models = PerFamily::default();
        for question in &case.questions {
            if let Err(what) = ask(subject, case, question, &mut models, &mut tally) {
                wrong.push(format!("{}, {}: {what}", case.file, question.place));
            }
        }
    }
    if wrong.is_empty() { Ok(tally) } else { Err(Failure::new(subject, "corpus", wrong.join("\n"))) }
}

/// Each family's rules are rendered once.
fn ask<S: Subject>(
    subject: &S,
    case: &Case,
    question: &Question,
    models: &mut PerFamily<Option<S::Model>>,
    tally: &mut Tally,
) -> Result<(), String> {
    let snapshot = case.snapshot(question);
    let packet = &question.packet;
    let rendered = models.get_mut(snapshot.family());
    let mut model = match rendered {
        Some(model) => model.clone(),
        None => rendered.insert(fresh(subject, snapshot).map_err(|e| e.to_string())?).clone(),
    };
    let decision = decide(snapshot, packet);
    if let (Some(endpoint), Some((_, name))) = (question.recorded, &decision.frontend) {
        model.remember(&subject.affinity_record(name, endpoint), packet.source)?;
    }
    let walker = Walker::new(subject, model, snapshot);
    if subject.gap(snapshot, packet, &decision).is_some() {
        return walker.one(packet, &decision, question.recorded, tally);
    }
    tally.recorded += usize::from(question.recorded.is_some());
    walker.ends(packet, question.outcome.clone(), tally)
}
