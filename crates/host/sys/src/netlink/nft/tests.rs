use super::*;
use crate::netns;

fn table() -> Table {
    Table { family: Family::Inet, name: "caravan-test".into() }
}

const FOUR: PortMap = PortMap { name: "v4", version: Version::V4, by_address: true };
const SIX: PortMap = PortMap { name: "v6", version: Version::V6, by_address: true };
const ANY: PortMap = PortMap { name: "any4", version: Version::V4, by_address: false };

fn element(address: Option<&str>, port: u16, to: &str, note: &str) -> Element {
    Element {
        address: address.map(|ip| ip.parse().unwrap()),
        transport: Transport::Tcp,
        port,
        to: to.parse().unwrap(),
        note: note.into(),
    }
}

/// Adds a table with all kinds of clauses.
fn build(transaction: &mut Transaction) {
    let own = table();
    transaction.add_table(&own);
    for map in [FOUR, SIX, ANY] {
        transaction.add_map(&own, map);
    }
    transaction.add_chain(&own, "prerouting", Hook::Prerouting);
    transaction.add_chain(&own, "postrouting", Hook::Postrouting);
    for map in [FOUR, SIX, ANY] {
        let clauses = [Clause::LocalDestination, Clause::Redirect(map)];
        transaction.append_rule(&own, "prerouting", &clauses, map.name);
    }
    let subnet: IpAddr = "172.26.64.0".parse().unwrap();
    let clauses = [
        Clause::Within(Direction::From, subnet, 20),
        Clause::Outside(Direction::To, subnet, 20),
        Clause::Masquerade,
    ];
    transaction.append_rule(&own, "postrouting", &clauses, "masquerade");
    let clauses = [
        Clause::Translated,
        Clause::Interface(Direction::To, "nomad".into()),
        Clause::Count,
        Clause::Masquerade,
    ];
    transaction.append_rule(&own, "postrouting", &clauses, "hairpin");
    let first = [Clause::Within(Direction::To, "ff00::".parse().unwrap(), 8), Clause::Then(Verdict::Return)];
    transaction.insert_rule(&own, "postrouting", &first, "multicast");
}

#[test]
fn a_table_is_listed_as_it_was_built() {
    netns::in_new(|| {
        let mut rules = Rules::open().unwrap();
        let mut transaction = Transaction::default();
        build(&mut transaction);
        let many: Vec<Element> =
            (0..1000).map(|n| element(Some("10.0.0.1"), 20_000 + n, "172.26.64.2:80", "a")).collect();
        transaction.add_elements(&table(), FOUR, &many);
        let six = [element(Some("fd00::1"), 80, "[fd00:1::2]:8080", "b")];
        transaction.add_elements(&table(), SIX, &six);
        let any = [element(None, 443, "172.26.64.3:443", "c")];
        transaction.add_elements(&table(), ANY, &any);
        rules.commit(transaction).unwrap();

        let notes: Vec<String> = rules.rules(&table()).unwrap().into_iter().map(|rule| rule.note).collect();
        assert_eq!(notes, ["v4", "v6", "any4", "multicast", "masquerade", "hairpin"]);
        let mut listed = rules.elements(&table(), FOUR).unwrap();
        listed.sort();
        assert_eq!(listed, many);
        assert_eq!(rules.elements(&table(), SIX).unwrap(), six);
        assert_eq!(rules.elements(&table(), ANY).unwrap(), any);
        let chains = rules.chains(Family::Inet).unwrap();
        assert_eq!(
            chains.iter().map(|chain| chain.name.as_str()).collect::<Vec<_>>(),
            ["prerouting", "postrouting"]
        );
    })
    .unwrap();
}

#[test]
fn a_refused_change_undoes_its_transaction_and_is_named() {
    netns::in_new(|| {
        let mut rules = Rules::open().unwrap();
        let mut transaction = Transaction::default();
        build(&mut transaction);
        transaction.add_elements(&table(), FOUR, &[element(Some("10.0.0.1"), 80, "172.26.64.2:80", "a")]);
        rules.commit(transaction).unwrap();
        let mut transaction = Transaction::default();
        transaction.add_elements(&table(), FOUR, &[element(Some("10.0.0.1"), 81, "172.26.64.3:80", "b")]);
        transaction.add_elements(&table(), FOUR, &[element(Some("10.0.0.1"), 80, "172.26.64.3:80", "b")]);
        let error = rules.commit(transaction).unwrap_err();
        assert_eq!(error.to_string(), "cannot map port 80 of the node");
        assert_eq!(error.io().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(rules.elements(&table(), FOUR).unwrap().len(), 1, "the first change was undone");
        let rule = rules.rules(&table()).unwrap().remove(0);
        let mut transaction = Transaction::default();
        transaction.delete_rule(&table(), &rule);
        transaction.delete_elements(&table(), FOUR, &[element(Some("10.0.0.1"), 80, "0.0.0.0:0", "")]);
        rules.commit(transaction).unwrap();
        assert!(rules.elements(&table(), FOUR).unwrap().is_empty());
        let mut transaction = Transaction::default();
        transaction.delete_table(&table());
        rules.commit(transaction).unwrap();
        assert!(rules.rules(&table()).unwrap().is_empty());
        assert!(
            rules.elements(&table(), FOUR).unwrap().is_empty(),
            "a map that does not exist has no elements"
        );
    })
    .unwrap();
}

#[test]
fn notes_are_read_as_they_were_written() {
    for note in ["", "a", &"é".repeat(100)] {
        let read = note_of(Some(&note_data(note)));
        assert!(note.starts_with(&read) && (read == note || read.len() >= MAX_NOTE - 1), "{read}");
    }
    assert_eq!(note_of(None), "");
    assert_eq!(note_of(Some(&[0, 200, 1])), "");
}
