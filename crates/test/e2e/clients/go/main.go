// A whole session with the published client for Go: usage session ADDRESS.
//
// Every step looks at what came of it; the first that does not see what it should ends the session.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

const patience = 60 * time.Second

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func demand(good bool, format string, args ...any) {
	if !good {
		panic(fmt.Sprintf(format, args...))
	}
}

func p[T any](value T) *T { return &value }

func job(count int, text string) *api.Job {
	job := api.NewServiceJob("session", "session", "global", 50)
	job.Datacenters = []string{"dc1"}
	task := api.NewTask("talk", "raw_exec")
	task.SetConfig("command", "/bin/sh")
	task.SetConfig("args", []string{"-c", "echo " + text + "; exec sleep 600"})
	task.Resources = &api.Resources{CPU: p(20), MemoryMB: p(16)}
	task.LogConfig = &api.LogConfig{MaxFiles: p(1), MaxFileSizeMB: p(1)}
	group := api.NewTaskGroup("work", count).AddTask(task)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: p(20)}
	group.Scaling = &api.ScalingPolicy{Min: p(int64(1)), Max: p(int64(4)), Enabled: p(true)}
	return job.AddTaskGroup(group)
}

// running waits by blocking queries until so many allocations run.
func running(c *api.Client, count int) []*api.AllocationListStub {
	query := &api.QueryOptions{WaitTime: 5 * time.Second}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		allocs, meta, err := c.Jobs().Allocations("session", false, query)
		check(err)
		live := 0
		for _, alloc := range allocs {
			if alloc.ClientStatus == api.AllocClientStatusRunning {
				live++
			}
		}
		if live == count {
			return allocs
		}
		query.WaitIndex = meta.LastIndex
	}
	panic("the allocations did not come to run")
}

func registers(c *api.Client) *api.Allocation {
	plan, _, err := c.Jobs().Plan(job(1, "one"), true, nil)
	check(err)
	demand(plan.Diff.Type == "Added", "the plan says %q", plan.Diff.Type)
	answer, _, err := c.Jobs().Register(job(1, "one"), nil)
	check(err)
	eval, _, err := c.Evaluations().Info(answer.EvalID, nil)
	check(err)
	demand(eval.JobID == "session", "the evaluation is about %q", eval.JobID)
	stubs := running(c, 1)
	alloc, _, err := c.Allocations().Info(stubs[0].ID, nil)
	check(err)
	demand(*alloc.Job.ID == "session", "the allocation runs %q", *alloc.Job.ID)
	_, _, err = c.Jobs().EnforceRegister(job(1, "other"), 1, nil)
	demand(err != nil && strings.Contains(err.Error(), "Enforcing job modify index 1"), "enforced: %v", err)
	_, _, err = c.Jobs().Info("nope", nil)
	demand(err != nil && strings.Contains(err.Error(), "job not found"), "unknown: %v", err)
	return alloc
}

func readsLogs(c *api.Client, alloc *api.Allocation) {
	cancel := make(chan struct{})
	defer close(cancel)
	frames, errors := c.AllocFS().Logs(alloc, true, "talk", "stdout", "start", 0, cancel, nil)
	var text bytes.Buffer
	timeout := time.After(patience)
	for text.String() != "one\n" {
		select {
		case frame, open := <-frames:
			demand(open, "the log ended with %q", text.String())
			text.Write(frame.Data)
		case err := <-errors:
			panic(err)
		case <-timeout:
			panic("the log did not come")
		}
	}
	files, _, err := c.AllocFS().List(alloc, "/alloc/logs", nil)
	check(err)
	demand(len(files) > 0, "there are no logs")
	reader := must(c.AllocFS().Cat(alloc, "/alloc/logs/talk.stdout.0", nil))
	defer reader.Close()
	demand(string(must(io.ReadAll(reader))) == "one\n", "the file holds something else")
	usage := must(c.Allocations().Stats(alloc, nil))
	demand(usage.Tasks["talk"] != nil, "no usage of the task")
}

func executes(c *api.Client, alloc *api.Allocation) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := []string{"/bin/sh", "-c", "cat; echo err >&2; exit 3"}
	code, err := c.Allocations().Exec(ctx, alloc, "talk", false, command,
		strings.NewReader("typed\n"), &stdout, &stderr, make(chan api.TerminalSize), nil)
	check(err)
	demand(code == 3 && stdout.String() == "typed\n" && stderr.String() == "err\n",
		"exit code %d, %q, %q", code, stdout.String(), stderr.String())
}

func scales(c *api.Client) {
	policies, _, err := c.Scaling().ListPolicies(nil)
	check(err)
	demand(len(policies) == 1 && policies[0].Target["Group"] == "work", "policies: %v", policies)
	policy, _, err := c.Scaling().GetPolicy(policies[0].ID, nil)
	check(err)
	demand(*policy.Max == 4, "the policy's maximum is %d", *policy.Max)
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		_, _, err = c.Jobs().Scale("session", "work", p(2), "more", false, map[string]any{"n": 1}, nil)
		if err == nil {
			break
		}
		// A deployment that is under way holds scaling up.
		demand(strings.Contains(err.Error(), "active deployment") && time.Now().Before(end), "scale: %v", err)
	}
	running(c, 2)
	status, _, err := c.Jobs().ScaleStatus("session", nil)
	check(err)
	event := status.TaskGroups["work"].Events[0]
	demand(event.Message == "more" && *event.Count == 2, "event: %v", event)
}

func keepsVersions(c *api.Client) {
	_, _, err := c.Jobs().Register(job(2, "two"), nil)
	check(err)
	_, err = c.Jobs().TagVersion("session", 0, "golden", "the first", nil)
	check(err)
	versions, diffs, _, err := c.Jobs().VersionsOpts("session", &api.VersionsOptions{Diffs: true}, nil)
	check(err)
	demand(len(versions) == 3 && len(diffs) == 2, "%d versions, %d diffs", len(versions), len(diffs))
	demand(versions[2].VersionTag.Name == "golden", "tag: %v", versions[2].VersionTag)
	_, err = c.Jobs().UntagVersion("session", "golden", nil)
	check(err)
	jobs, meta, err := c.Jobs().List(&api.QueryOptions{Filter: `Type == "service"`, PerPage: 10})
	check(err)
	demand(len(jobs) == 1 && meta.LastIndex > 0, "%d jobs", len(jobs))
	found, _, err := c.Search().FuzzySearch("essio", "jobs", nil)
	check(err)
	demand(found.Matches["jobs"][0].ID == "session", "found: %v", found.Matches)
}

func keepsVariables(c *api.Client) {
	written, _, err := c.Variables().Create(&api.Variable{Path: "session/one", Items: api.VariableItems{"user": "u"}}, nil)
	check(err)
	read, _, err := c.Variables().Read("session/one", nil)
	check(err)
	demand(read.Items["user"] == "u", "items: %v", read.Items)
	stale := *written
	stale.ModifyIndex = 1
	_, _, err = c.Variables().CheckedUpdate(&stale, nil)
	demand(err != nil, "a check-and-set with an old index")
	_, err = c.Variables().Delete("session/one", nil)
	check(err)
}

func makesVolumes(c *api.Client) {
	nodes, _, err := c.Nodes().List(nil)
	check(err)
	answer, _, err := c.HostVolumes().Create(&api.HostVolumeCreateRequest{Volume: &api.HostVolume{
		Name: "scratch", PluginID: "mkdir", NodeID: nodes[0].ID,
		RequestedCapabilities: []*api.HostVolumeCapability{{
			AccessMode: api.HostVolumeAccessModeSingleNodeWriter, AttachmentMode: api.HostVolumeAttachmentModeFilesystem,
		}},
	}}, nil)
	check(err)
	id := answer.Volume.ID
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		volume, _, err := c.HostVolumes().Get(id, nil)
		check(err)
		if volume.State == api.HostVolumeStateReady {
			break
		}
		demand(time.Now().Before(end), "the volume is %s", volume.State)
	}
	_, _, err = c.HostVolumes().Delete(&api.HostVolumeDeleteRequest{ID: id}, nil)
	check(err)
	_, _, err = c.CSIVolumes().List(nil)
	check(err)
}

func hearsOfEvents(c *api.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topics := map[api.Topic][]string{api.TopicJob: {"session"}, api.TopicAllocation: {"*"}}
	events := must(c.EventStream().Stream(ctx, topics, 0, nil))
	_, _, err := c.Jobs().Register(job(2, "three"), nil)
	check(err)
	for batch := range events {
		check(batch.Err)
		for _, event := range batch.Events {
			if event.Topic == api.TopicJob && event.Key == "session" {
				demand(must(event.Job()) != nil, "the event has no job")
				return
			}
		}
	}
	panic("no event of the job came")
}

func drains(c *api.Client) {
	nodes, _, err := c.Nodes().List(nil)
	check(err)
	node := nodes[0].ID
	answer, err := c.Nodes().UpdateDrain(node, &api.DrainSpec{Deadline: 5 * time.Second}, false, nil)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range c.Nodes().MonitorDrain(ctx, node, answer.LastIndex, false) {
	}
	demand(ctx.Err() == nil, "the drain did not end")
	_, err = c.Nodes().UpdateDrain(node, nil, true, nil)
	check(err)
	running(c, 2)
}

func ends(c *api.Client) {
	_, _, err := c.Jobs().Deregister("session", true, nil)
	check(err)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		_, _, err = c.Jobs().Info("session", nil)
		if err != nil {
			break
		}
		demand(time.Now().Before(end), "the job is still there")
	}
	check(c.System().GarbageCollect())
}

func main() {
	c := must(api.NewClient(&api.Config{Address: os.Args[1]}))
	alloc := registers(c)
	readsLogs(c, alloc)
	executes(c, alloc)
	scales(c)
	keepsVersions(c)
	keepsVariables(c)
	makesVolumes(c)
	hearsOfEvents(c)
	drains(c)
	ends(c)
	fmt.Println("the session is over")
}
