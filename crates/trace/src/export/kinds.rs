//! Defines the kinds (categories) of activities that Kineto does not have. The hosts of a profile
//! describe these kinds ([`profile::Host::kinds`]). A host is a runtime that called the recorded
//! ops or compute kernels. An exported trace contains a list of these kinds. If the trace is
//! imported and exported again, the second export reads this list.

use std::collections::{HashMap, HashSet};

use model::activity::{Generic, Kind, Label, RegisterError, Registry, Vocabulary};
use profile::{Host, Profile, Role};
use serde_json::{Value, json};

/// At most this many kinds are read from an imported trace.
const MOST_LISTED: usize = 1_000;

/// Returns the kind of calls with this role if their host defines no kind for the role. A kind that
/// the host defines has the same name in Kineto's vocabulary as the kind that this function
/// returns.
fn usual(role: Role) -> Generic {
    match role {
        Role::Run | Role::Range => Generic::UserAnnotation,
        _ => Generic::CpuOp,
    }
}

/// Registers a kind, with Kineto's name for it. If the name is taken, the producer's name is put
/// before it. Returns `None` if the kind cannot be registered, for example because its name is not
/// valid.
fn register(registry: &mut Registry, producer: &str, name: &str, usual: Generic) -> Option<Label> {
    let kineto = Some(usual.kineto_name());
    let number = registry.producer(producer).ok()?;
    match registry.register(number, name, kineto) {
        Err(RegisterError::Taken(_)) => {
            registry.register(number, &format!("{producer}.{name}"), kineto).ok()
        }
        label => label.ok(),
    }
}

/// Registers the kinds that an exported trace lists. `document` is the top-level JSON object of the
/// trace; if traces were merged, it also contains the objects of the merged files.
pub(crate) fn register_listed(registry: &mut Registry, document: &Value) {
    let of = |document: &Value| document["counterpoint"]["kinds"].as_array().cloned();
    let files = document["counterpoint"]["files"].as_array().into_iter().flatten();
    let documents = files.map(|file| &file["document"]).chain([document]);
    for kind in documents.filter_map(of).flatten().take(MOST_LISTED) {
        if let (Some(producer), Some(name)) = (kind["producer"].as_str(), kind["name"].as_str())
            && registry.parse(name).is_none()
        {
            let _ = register(registry, producer, name, listed_kineto(&kind["kineto"]));
        }
    }
}

/// Returns the kind that has this name in Kineto's vocabulary, or else `cpu_op`.
fn listed_kineto(name: &Value) -> Generic {
    let registry = Registry::new();
    let known = name.as_str().and_then(|name| registry.parse(name));
    match known.map(|label| registry.kind(label)) {
        Some(Kind::Generic(kind)) => kind,
        _ => Generic::CpuOp,
    }
}

/// Returns the list of kinds that a trace of `profile` has in its object `counterpoint`.
pub fn listed(profile: &Profile) -> Vec<Value> {
    let (mut all, mut hosts, mut known) = (Vec::new(), HashSet::new(), HashSet::new());
    let categories = Categories::new(&mut Registry::new(), Vocabulary::Generic, profile);
    for process in profile.processes.iter().filter(|process| !process.id.is_of_plugins()) {
        for host in process.seen_hosts() {
            if !hosts.insert(host) {
                continue;
            }
            for (role, _) in host.kinds.iter() {
                let Some(name) = categories.defined(host, *role) else { continue };
                if known.insert(name) {
                    let kineto = usual(*role).kineto_name();
                    all.push(json!({ "producer": host.name, "name": name, "kineto": kineto }));
                }
            }
        }
    }
    all
}

/// The categories of calls, which depend on the call's host and role.
#[derive(Clone, Debug)]
pub(crate) struct Categories<'a> {
    /// The index of each host in the list of all hosts.
    places: HashMap<&'a Host, usize>,
    /// For each host and role: the name of the kind, and whether the host defines this kind.
    names: Vec<[(String, bool); Role::ALL.len()]>,
}

impl<'a> Categories<'a> {
    pub(crate) fn new(
        registry: &mut Registry,
        vocabulary: Vocabulary,
        profile: &'a Profile,
    ) -> Self {
        Self::of_hosts(registry, vocabulary, profile.ops.hosts())
    }

    fn of_hosts(registry: &mut Registry, vocabulary: Vocabulary, hosts: &'a [Host]) -> Self {
        // Several hosts in the list may have the same name and the same kind. Such a kind is
        // registered only once.
        let mut known: HashMap<(&str, &str, Generic), Option<Label>> = HashMap::new();
        let names = hosts.iter().map(|host| {
            Role::ALL.map(|role| {
                let usual = usual(role);
                let defined = host.kind(role).and_then(|kind| {
                    let label = known.entry((&*host.name, kind, usual));
                    *label.or_insert_with(|| register(registry, &host.name, kind, usual))
                });
                let label = defined.unwrap_or(usual.into());
                (registry.name(label, vocabulary).to_owned(), defined.is_some())
            })
        });
        let names = names.collect();
        let places = hosts.iter().zip(0..).collect();
        Self { places, names }
    }

    /// `host` is an index into [`profile::Ops::hosts`].
    pub(crate) fn of(&self, host: u32, role: Role) -> &str {
        let of = self.names.get(host as usize).or(self.names.first());
        of.map_or("", |names| &names[role as usize].0)
    }

    /// Returns the name of a role's kind, if this host defines one.
    fn defined(&self, host: &Host, role: Role) -> Option<&str> {
        let (name, defined) = &self.names.get(*self.places.get(host)?)?[role as usize];
        defined.then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &'static str, kinds: &[(Role, &'static str)]) -> Host {
        let kinds = kinds.iter().map(|(role, kind)| (*role, (*kind).into()));
        Host { name: name.into(), kinds: kinds.collect(), ..Host::UNKNOWN }
    }

    /// In Kineto's vocabulary, the categories of calls are names of Kineto (from its
    /// `ActivityType`). In the generic vocabulary, the categories are the kinds that the hosts
    /// define. If the name of a kind is taken, the host's name is put before it. A kind whose name
    /// is not allowed is left out.
    #[test]
    fn categories_by_host_and_role() {
        let hosts = [
            Host::UNKNOWN,
            host("iree", &[(Role::Workgroup, "workgroup")]),
            host("vm", &[(Role::Region, "region"), (Role::Task, "task")]),
            host("toy", &[(Role::Region, "region"), (Role::Op, "kernel"), (Role::Task, "a,b")]),
            host("iree", &[(Role::Workgroup, "workgroup"), (Role::Op, "workgroup")]),
            host("runner", &[(Role::Run, "once"), (Role::Range, "once"), (Role::Op, "once")]),
        ];
        for (host, role, kineto, generic) in [
            (0, Role::Workgroup, "cpu_op", "cpu_op"),
            (1, Role::Workgroup, "cpu_op", "workgroup"),
            (2, Role::Run, "user_annotation", "user_annotation"),
            (2, Role::Range, "user_annotation", "user_annotation"),
            (2, Role::Op, "cpu_op", "cpu_op"),
            (2, Role::Region, "cpu_op", "region"),
            (2, Role::Task, "cpu_op", "task"),
            (3, Role::Region, "cpu_op", "toy.region"),
            (3, Role::Op, "cpu_op", "toy.kernel"),
            (3, Role::Task, "cpu_op", "cpu_op"),
            (4, Role::Workgroup, "cpu_op", "workgroup"),
            // Kineto has different kinds for these roles, so only the role that is registered first
            // (`Op`) can have the name `once`.
            (5, Role::Run, "user_annotation", "runner.once"),
            (5, Role::Range, "user_annotation", "runner.once"),
            (5, Role::Op, "cpu_op", "once"),
            (99, Role::Workgroup, "cpu_op", "cpu_op"),
        ] {
            for (vocabulary, expected) in
                [(Vocabulary::Kineto, kineto), (Vocabulary::Generic, generic)]
            {
                let categories = Categories::of_hosts(&mut Registry::new(), vocabulary, &hosts);
                assert_eq!(categories.of(host, role), expected, "{host} {role:?}");
            }
        }
    }

    /// The list of kinds in a trace may contain invalid entries.
    #[test]
    fn listed_kinds_are_registered() {
        let kind = |producer: &str, name: &str| json!({"producer": producer, "name": name});
        let document = json!({"counterpoint": {
            "kinds": [
                kind("toy", "step"), kind("toy", "step"), kind("x", "cpu_op"), 7, {"name": 3},
                {"producer": "toy", "name": "run", "kineto": "user_annotation"},
                {"producer": "toy", "name": "other", "kineto": "x".repeat(1_000)},
            ],
            "files": [{"document": {"counterpoint": {"kinds": [kind("tvm", "region")]}}}, "file"],
        }});
        let mut registry = Registry::new();
        register_listed(&mut registry, &document);
        for (name, kineto) in [
            ("step", "cpu_op"),
            ("region", "cpu_op"),
            ("run", "user_annotation"),
            ("other", "cpu_op"),
        ] {
            let label = registry.parse(name).expect("registered");
            assert_eq!(registry.name(label, Vocabulary::Kineto), kineto, "{name}");
        }
        assert!(registry.parse("x.cpu_op").is_none() && registry.parse("toy.step").is_none());
    }
}
