use super::*;

fn endpoint(ip: &str, port: u16) -> EndpointAddr {
    EndpointAddr { ip: ip.parse().unwrap(), port: Port::new(port).unwrap() }
}

fn choice(ip: &str, weight: u32, masquerade: bool) -> Choice {
    Choice { endpoint: endpoint(ip, 80), weight, masquerade }
}

fn to(ip: &str, weight: (u64, u64), masquerade: bool) -> Branch {
    let dnat = Some((ip.parse().unwrap(), 80));
    Branch {
        weight: Fraction::new(weight.0, weight.1).unwrap(),
        outcome: BranchOutcome::Accepted { dnat, masquerade, delivery: Delivery::Forwarded },
        trace: Vec::new(),
        affinity_updates: Vec::new(),
    }
}

#[test]
fn normal_form_joins_reduces_and_sorts() {
    let given = vec![
        choice("1.1.1.2", 4, false),
        choice("1.1.1.1", 2, true),
        choice("1.1.1.3", 0, false),
        choice("1.1.1.1", 2, false),
        choice("1.1.1.2", 2, false),
    ];
    let expected = vec![choice("1.1.1.1", 1, false), choice("1.1.1.1", 1, true), choice("1.1.1.2", 3, false)];
    assert_eq!(normalise(Outcome::Endpoints(given)), Outcome::Endpoints(expected.clone()));
    assert_eq!(normalise(Outcome::Endpoints(expected.clone())), Outcome::Endpoints(expected));
    assert_eq!(normalise(Outcome::Drop), Outcome::Drop);
}

#[test]
fn branches_to_one_endpoint_add_up() {
    let walk = Walk {
        branches: vec![
            to("1.1.1.2", (1, 3), false),
            to("1.1.1.1", (1, 6), false),
            to("1.1.1.1", (1, 4), true),
            to("1.1.1.1", (1, 6), false),
            to("1.1.1.3", (1, 12), false),
        ],
    };
    let expected = vec![
        choice("1.1.1.1", 3, true),
        choice("1.1.1.1", 4, false),
        choice("1.1.1.2", 4, false),
        choice("1.1.1.3", 1, false),
    ];
    assert_eq!(walk.outcome(), Ok(Outcome::Endpoints(expected)));
    assert!(matches!(Walk { branches: Vec::new() }.outcome(), Err(WalkError::Mixed(_))));
}

#[test]
fn fractions() {
    let fraction = |a, b| Fraction::new(a, b).unwrap();
    assert_eq!(fraction(2, 4), fraction(1, 2));
    assert_eq!(fraction(1, 2).plus(fraction(1, 3)), Some(fraction(5, 6)));
    assert_eq!(fraction(2, 3).times(fraction(3, 4)), Some(fraction(1, 2)));
    assert_eq!(Fraction::ZERO.plus(fraction(7, 9)), Some(fraction(7, 9)));
    assert_eq!(Fraction::new(1, 0), None);
    let tiny = fraction(1, u64::MAX);
    assert_eq!(tiny.times(fraction(1, 2)), None);
    assert_eq!(tiny.plus(fraction(1, u64::MAX - 1)), None);
    assert_eq!(fraction(6, 4).to_string(), "3/2");
}

#[test]
fn addresses_and_routes_of_a_host() {
    let host = WalkHost::new(["10.0.0.1".parse().unwrap()])
        .with_route("10.0.0.0/8".parse().unwrap(), "a")
        .with_route("10.1.0.0/16".parse().unwrap(), "b");
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    for local in ["10.0.0.1", "127.0.0.1", "127.9.9.9", "::1"] {
        assert!(host.is_local(ip(local)), "{local}");
    }
    assert!(!host.is_local(ip("10.0.0.2")));
    let towards = |text: &str| host.interface_towards(ip(text)).map(|name| &**name);
    assert_eq!([towards("10.1.2.3"), towards("10.2.2.3"), towards("9.9.9.9")], [Some("b"), Some("a"), None]);
}
