//! The rows. A group is a subject: its services, and who calls them where.

mod addresses;
mod endpoints;
mod policies;

use super::row::Group;

/// All groups.
#[must_use]
pub fn groups() -> Vec<Group> {
    vec![
        policies::policies(),
        policies::kinds(),
        policies::third_protocol(),
        endpoints::conditions(),
        endpoints::topology(),
        endpoints::hairpin(),
        endpoints::host_network(),
        endpoints::affinity(),
        addresses::ranges(),
        addresses::ports(),
        addresses::families(),
        addresses::node_ports(),
        addresses::node_addresses(),
        addresses::unknown(),
        addresses::conflicts(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::matrix::row::Row;
    use crate::matrix::setting::SETTINGS;

    #[test]
    fn rows_name_services_of_their_group_and_names_are_unique() {
        let mut names = BTreeSet::new();
        let mut services = 0;
        for group in groups() {
            let own: BTreeSet<String> = group.services.iter().map(|s| s.name.clone()).collect();
            assert_eq!(own.len(), group.services.len(), "{}", group.name);
            services += own.len();
            names.extend(own.iter().cloned());
            for row in &group.rows {
                let shape = group.services.iter().find(|s| s.name == row.service).unwrap();
                assert!(row.port < shape.ports.len(), "{row:?}");
                assert!(shape.families.contains(&row.family), "{row:?}");
            }
            assert!(!group.rows.is_empty(), "{}", group.name);
            assert!(
                group.settings.iter().all(|s| SETTINGS.iter().any(|known| known.name == *s)),
                "{}",
                group.name
            );
        }
        assert_eq!(names.len(), services);
        // Numbers of services are one byte, and live scenarios need some too.
        assert!(services < 150, "{services}");
    }

    #[test]
    fn the_matrix_is_large() {
        for family in proxier_core::ids::IpFamily::ALL {
            let rows: usize =
                groups().iter().map(|g| g.rows.iter().filter(|r| r.family == family).count()).sum();
            assert!(rows >= 300, "{rows} for {family}");
        }
    }

    #[test]
    fn a_thin_pace_leaves_out_no_subject() {
        let mut counts = [0, 0];
        for group in groups() {
            let thin: Vec<_> = group.rows_in(&SETTINGS[0], true).collect();
            counts[0] += group.rows.len();
            counts[1] += thin.len();
            for row in &group.rows {
                let same = |r: &&&Row| {
                    let subject =
                        |r: &Row| (r.service.clone(), r.from, r.place, r.number, r.protocol, r.portless);
                    subject(r) == subject(row)
                };
                let kept: Vec<_> = thin.iter().filter(same).collect();
                assert!(kept.iter().any(|r| r.family == row.family), "{}: {row:?}", group.name);
                assert!(kept.iter().any(|r| r.port == row.port), "{}: {row:?}", group.name);
            }
        }
        assert!(counts[1] * 10 < counts[0] * 7, "of {} rows {} are left", counts[0], counts[1]);
    }
}
