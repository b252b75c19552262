//! Licence expressions (SPDX): whether a set of licences satisfies one.

/// Whether `expression` can be satisfied with licences from `allowed` only. `AND` binds closer than `OR`; the old `A/B`
/// means `A OR B`; `A+` ("or any later version") is satisfied by `A`.
pub(crate) fn satisfied(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { rest: spaced.split_whitespace().collect(), allowed };
    let holds = words.either()?;
    match words.rest.first() {
        None => Ok(holds),
        Some(word) => Err(format!("{expression}: unexpected {word}")),
    }
}

struct Words<'a> {
    rest: Vec<&'a str>,
    allowed: &'a [String],
}

impl<'a> Words<'a> {
    fn take_if(&mut self, word: &str) -> bool {
        let next = self.rest.first() == Some(&word);
        if next {
            self.rest.remove(0);
        }
        next
    }

    fn take(&mut self) -> Result<&'a str, String> {
        if self.rest.is_empty() {
            Err("the expression ends early".to_owned())
        } else {
            Ok(self.rest.remove(0))
        }
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut holds = self.both()?;
        while self.take_if("OR") {
            holds |= self.both()?;
        }
        Ok(holds)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut holds = self.single()?;
        while self.take_if("AND") {
            holds &= self.single()?;
        }
        Ok(holds)
    }

    fn single(&mut self) -> Result<bool, String> {
        if self.take_if("(") {
            let holds = self.either()?;
            return if self.take_if(")") { Ok(holds) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let mut name = self.take()?.trim_end_matches('+').to_owned();
        if self.take_if("WITH") {
            name = format!("{name} WITH {}", self.take()?);
        }
        Ok(self.allowed.contains(&name))
    }
}

#[test]
fn expressions_are_satisfied_by_what_they_offer() {
    let allowed = ["MIT", "Apache-2.0", "MPL-2.0"].map(str::to_owned);
    let holds = |expression: &str| satisfied(expression, &allowed).unwrap();
    for expression in [
        "MIT",
        "MPL-2.0+",
        "GPL-3.0 OR MIT",
        "Unlicense/MIT",
        "(GPL-3.0 OR MIT) AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        "GPL-3.0 AND LGPL-3.0 OR MIT",
    ] {
        assert!(holds(expression), "{expression}");
    }
    for expression in [
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-3.0 OR MIT AND LGPL-3.0",
    ] {
        assert!(!holds(expression), "{expression}");
    }
}

#[test]
fn what_is_no_expression_is_refused() {
    for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH"] {
        assert!(satisfied(expression, &["MIT".to_owned()]).is_err(), "{expression}");
    }
}
