//! A runner for tests: states which commands may be run and what they answer.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proxier_sys::runner::{CommandSpec, Output, RunError, Runner};

/// Commands by their words, each with its answers in order; the last one stays. What is not stated is not installed.
#[derive(Debug, Default)]
pub struct Script {
    answers: RefCell<BTreeMap<String, Vec<Output>>>,
    /// What was run: the words and the input.
    pub ran: RefCell<Vec<(String, String)>>,
}

impl Script {
    /// One that answers nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A command, its words joined by blanks, succeeds with this on standard output.
    #[must_use]
    pub fn says(self, command: &str, stdout: &str) -> Self {
        self.answers(command, Output { stdout: stdout.into(), ..Output::default() })
    }

    /// A command ends with this exit status and this on standard error.
    #[must_use]
    pub fn fails(self, command: &str, code: i32, stderr: &str) -> Self {
        self.answers(command, Output { code, stderr: stderr.into(), ..Output::default() })
    }

    fn answers(self, command: &str, output: Output) -> Self {
        self.answers.borrow_mut().entry(command.to_owned()).or_default().push(output);
        self
    }

    /// Inputs in the order they were given; commands without one are left out.
    #[must_use]
    pub fn inputs(&self) -> Vec<String> {
        self.ran.borrow().iter().map(|(_, input)| input.clone()).filter(|i| !i.is_empty()).collect()
    }
}

impl Runner for Script {
    fn run(&self, command: &CommandSpec) -> Result<Output, RunError> {
        let words = [std::slice::from_ref(&command.program), &command.args].concat().join(" ");
        let input = String::from_utf8_lossy(command.stdin.as_deref().unwrap_or_default()).into_owned();
        let mut answers = self.answers.borrow_mut();
        let Some(answers) = answers.get_mut(&words) else {
            return Err(RunError::Missing { program: command.program.clone() });
        };
        self.ran.borrow_mut().push((words, input));
        if answers.len() > 1 { Ok(answers.remove(0)) } else { Ok(answers[0].clone()) }
    }
}
