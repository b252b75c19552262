//! The oracle, put to the corpus.

use proxier_core::ids::EndpointAddr;
use proxier_core::oracle::{Choice, Decision, Outcome, decide};

use super::{Case, Question};
use crate::walk::normalise;

/// The oracle's answer to a question, session affinity applied, and the whole decision.
#[must_use]
pub fn answer(case: &Case, question: &Question) -> (Outcome, Decision) {
    let decision = decide(case.snapshot(question), &question.packet);
    (normalise(recorded(&decision, question.recorded)), decision)
}

fn recorded(decision: &Decision, endpoint: Option<EndpointAddr>) -> Outcome {
    match (&decision.outcome, endpoint) {
        (Outcome::Endpoints(choices), Some(endpoint)) if decision.affinity.is_some() => {
            let there: Vec<Choice> = choices.iter().filter(|c| c.endpoint == endpoint).cloned().collect();
            Outcome::Endpoints(if there.is_empty() { choices.clone() } else { there })
        }
        (outcome, _) => outcome.clone(),
    }
}

/// Puts every packet of a case to the oracle; all that it answers otherwise, in words.
#[must_use]
pub fn check(case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    for question in &case.questions {
        let (found, decision) = answer(case, question);
        let reason_differs = question.reason.as_ref().is_some_and(|r| *r != decision.reason);
        if found == question.outcome && !reason_differs {
            continue;
        }
        let expected = question.reason.as_ref().map(|r| format!(", because {r}")).unwrap_or_default();
        wrong.push(format!(
            "{}, {}: {:?}\n  expected: {}{expected}\n  decided:  {found}\n{decision}",
            case.file, question.place, question.packet, question.outcome
        ));
    }
    wrong
}
