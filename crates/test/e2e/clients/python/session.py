"""A whole session with the published client for Python: usage session.py PORT.

Every step looks at what came of it; the first that does not see what it should ends the session.
"""

import queue
import sys
import time

import nomad

PORT = int(sys.argv[1])
DEADLINE = 60


def client(**more):
    return nomad.Nomad(host="127.0.0.1", port=PORT, timeout=30, **more)


def job(count, text):
    return {
        "Job": {
            "ID": "session",
            "Name": "session",
            "Type": "service",
            "Datacenters": ["dc1"],
            "TaskGroups": [
                {
                    "Name": "work",
                    "Count": count,
                    "Tasks": [
                        {
                            "Name": "talk",
                            "Driver": "raw_exec",
                            "Config": {
                                "command": "/bin/sh",
                                "args": ["-c", "echo %s; echo to stderr >&2; exec sleep 600" % text],
                            },
                            "Resources": {"CPU": 20, "MemoryMB": 16},
                            "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
                        }
                    ],
                    "EphemeralDisk": {"SizeMB": 20},
                    "Scaling": {"Enabled": True, "Min": 1, "Max": 4},
                }
            ],
        }
    }


def blocking(n, path, good):
    """Waits by blocking queries, which this client leaves to whoever uses it."""
    index, deadline = 0, time.time() + DEADLINE
    while True:
        answer = n.job._request(
            method="get", endpoint="v1/" + path, params={"index": index, "wait": "5s"}, timeout=30
        )
        value = answer.json()
        if good(value):
            return value
        index = int(answer.headers["X-Nomad-Index"])
        assert time.time() < deadline, "%s: %s" % (path, value)
        # A table that was never written has index 0, for which no query waits.
        if index == 0:
            time.sleep(0.1)


def running(count):
    return lambda allocs: sum(a["ClientStatus"] == "running" for a in allocs) == count


def registers(n):
    assert n.jobs.get_jobs() == [] and "session" not in n.job
    parsed = n.jobs.parse('job "p" {\n group "g" {\n task "t" {\n driver = "raw_exec"\n }\n }\n}', canonicalize=True)
    assert parsed["ID"] == "p" and parsed["TaskGroups"][0]["Count"] == 1
    plan = n.job.plan_job("session", job(1, "one"), diff=True)
    assert plan["Diff"]["Type"] == "Added" and plan["Annotations"]["DesiredTGUpdates"]["work"]["Place"] == 1
    assert n.validate.validate_job(job(1, "one")).json()["Error"] == ""
    registered = n.job.register_job("session", job(1, "one"))
    assert n.evaluation.get_evaluation(registered["EvalID"])["JobID"] == "session"
    assert "session" in n.job and n.job["session"]["Version"] == 0
    assert n.jobs["session"]["Type"] == "service"
    allocs = blocking(n, "job/session/allocations", running(1))
    alloc = allocs[0]["ID"]
    assert n.allocation.get_allocation(alloc)["Job"]["ID"] == "session"
    assert [a["ID"] for a in n.allocations.get_allocations(prefix=alloc[:8])] == [alloc]
    assert len(n.evaluations.get_evaluations()) >= 1
    return alloc


def reads_logs_and_files(n, alloc):
    for stream, text in [("stdout", "one\n"), ("stderr", "to stderr\n")]:
        deadline = time.time() + DEADLINE
        while n.client.stream_logs.stream(alloc, "talk", stream, plain=True) != text:
            assert time.time() < deadline
            time.sleep(0.1)
    names = [f["Name"] for f in n.client.ls.list_files(alloc, path="/alloc/logs")]
    assert "talk.stdout.0" in names, names
    assert n.client.stat.stat_file(alloc, path="/alloc/logs/talk.stdout.0")["Size"] == 4
    assert n.client.cat.read_file(alloc, path="/alloc/logs/talk.stdout.0") == "one\n"
    assert n.client.read_at.read_file_offset(alloc, 1, 2, path="/alloc/logs/talk.stdout.0") == "ne"
    assert n.client.stats.read_stats()["Memory"]["Total"] > 0
    assert "talk" in n.client.allocation.read_allocation_stats(alloc)["Tasks"]
    try:
        n.client.ls.list_files("11111111-2222-3333-4444-555555555555")
        raise AssertionError("an allocation that is not there has files")
    except nomad.api.exceptions.URLNotFoundNomadException:
        pass


def scales(n):
    policies = n.scaling.get_scaling_policies(job="session")
    assert policies[0]["Target"]["Group"] == "work"
    assert n.scaling.get_scaling_policy(policies[0]["ID"])["Max"] == 4
    # A deployment that is under way holds scaling up.
    deadline = time.time() + DEADLINE
    while True:
        answer = n.job._request(
            method="post",
            endpoint="v1/job/session/scale",
            json={"Count": 2, "Target": {"Group": "work"}, "Message": "more"},
        ) if not active(n) else None
        if answer is not None:
            break
        assert time.time() < deadline
        time.sleep(0.2)
    assert len(answer.json()["EvalID"]) == 36
    blocking(n, "job/session/allocations", running(2))
    status = n.job._request(method="get", endpoint="v1/job/session/scale").json()
    assert status["TaskGroups"]["work"]["Events"][0]["Message"] == "more"


def active(n):
    newest = n.job.get_deployment("session")
    return newest is not None and newest["Status"] == "running"


def keeps_versions(n):
    n.job.register_job("session", job(2, "two"))
    versions = n.job.get_versions("session")["Versions"]
    assert [v["Version"] for v in versions] == [2, 1, 0], versions
    assert n.job.get_summary("session")["JobID"] == "session"
    n.job.evaluate_job("session")


def keeps_variables(n):
    written = n.variable.create_variable("session/one", {"Items": {"user": "u"}})
    assert n.variable.get_variable("session/one")["Items"] == {"user": "u"}
    try:
        n.variable.create_variable("session/one", {"Items": {"user": "v"}}, cas=0)
        raise AssertionError("a check-and-set over what is there")
    except nomad.api.exceptions.VariableConflict:
        pass
    n.variable.create_variable("session/one", {"Items": {"user": "v"}}, cas=written["ModifyIndex"])
    assert [v["Path"] for v in n.variables.get_variables(prefix="session/")] == ["session/one"]
    n.variable.delete_variable("session/one")
    assert "session/one" not in n.variable


def searches(n):
    assert n.search.search("sess", "jobs")["Matches"]["jobs"] == ["session"]
    fuzzy = n.search.fuzzy_search("essio", "jobs")
    assert fuzzy["Matches"]["jobs"][0]["ID"] == "session", fuzzy


def makes_volumes(n):
    node = n.nodes.get_nodes()[0]["ID"]
    volume = {
        "Name": "scratch",
        "PluginID": "mkdir",
        "NodeID": node,
        "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
    }
    made = n.job._request(method="put", endpoint="v1/volume/host/create", json={"Volume": volume}).json()
    id_ = made["Volume"]["ID"]
    listed = n.job._request(method="get", endpoint="v1/volumes", params={"type": "host"}).json()
    assert [v["ID"] for v in listed] == [id_]
    deadline = time.time() + DEADLINE
    while n.job._request(method="get", endpoint="v1/volume/host/" + id_).json()["State"] != "ready":
        assert time.time() < deadline
        time.sleep(0.1)
    n.job._request(method="delete", endpoint="v1/volume/host/" + id_)


def hears_of_events(n):
    stream, exit_event, events = n.event.stream.get_stream(topic={"Job": "session"}, timeout=10)
    stream.daemon = True
    stream.start()
    deadline = time.time() + DEADLINE
    seen, attempt = False, 0
    while not seen:
        assert time.time() < deadline
        # The stream may begin after the registration, whose event it then lacks: another one follows.
        attempt += 1
        n.job.register_job("session", job(2, "three %d" % attempt))
        try:
            batch = events.get(timeout=5)
        except queue.Empty:
            continue
        seen = any(e["Topic"] == "Job" and e["Key"] == "session" for e in batch["Events"])
    exit_event.set()


def drains(n):
    node = n.nodes.get_nodes()[0]["ID"]
    n.node.eligible_node(node, ineligible=True)
    assert n.node[node]["SchedulingEligibility"] == "ineligible"
    n.node.eligible_node(node, eligible=True)
    n.node.drain_node_with_spec(node, {"Deadline": 5_000_000_000, "IgnoreSystemJobs": False})
    blocking(n, "node/" + node, lambda row: row["DrainStrategy"] is None)
    assert all(a["ClientStatus"] != "running" for a in n.node.get_allocations(node))
    n.node.drain_node_with_spec(node, None, mark_eligible=True)
    blocking(n, "job/session/allocations", running(2))


def tells_about_the_cluster(n):
    assert n.agent.get_agent()["config"]["Region"] == "global"
    assert len(n.agent.get_members()["Members"]) == 1
    assert n.regions.get_regions() == ["global"]
    assert ":" in n.status.leader.get_leader() and len(n.status.peers.get_peers()) == 1
    assert n.operator.get_configuration()["Servers"][0]["Leader"] is True
    assert "Gauges" in n.metrics.get_metrics() or n.metrics.get_metrics()["Gauges"] is not None
    n.system.initiate_garbage_collection()
    assert n.namespaces.get_namespaces()[0]["Name"] == "default"


def ends(n):
    gone = n.job.deregister_job("session", purge=True)
    assert len(gone["EvalID"]) == 36
    deadline = time.time() + DEADLINE
    while "session" in n.job:
        assert time.time() < deadline
        time.sleep(0.1)
    try:
        n.job.get_job("session")
        raise AssertionError("a job that is gone")
    except nomad.api.exceptions.URLNotFoundNomadException:
        pass


def main():
    n = client()
    alloc = registers(n)
    for step in [
        lambda: reads_logs_and_files(n, alloc),
        lambda: scales(n),
        lambda: keeps_versions(n),
        lambda: keeps_variables(n),
        lambda: searches(n),
        lambda: makes_volumes(n),
        lambda: hears_of_events(n),
        lambda: drains(n),
        lambda: tells_about_the_cluster(n),
        lambda: ends(n),
    ]:
        step()
    print("the session is over")


main()
