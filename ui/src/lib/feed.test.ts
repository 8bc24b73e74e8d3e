import { expect, it } from 'vitest';
import { FrameFeed, Frames, GroupFeed, labelled, TextFeed, unread } from './feed';
import { GroupLog } from './grouplog';
import { plain } from './sgr';

const bytes = (text: string) => new TextEncoder().encode(text);
const frame = (text: string, offset: number, file = 'alloc/logs/t.stdout.0') => {
  const Data = btoa(String.fromCharCode(...bytes(text)));
  return JSON.stringify({ Data, File: file, Offset: offset });
};

it('cuts frames wherever their bytes are', () => {
  const text = `${frame('one', 3, 'alloc/logs/a}b".stdout.0')}{}${frame('two', 6)}`;
  for (let step = 1; step < text.length; step += 1) {
    const frames = new Frames();
    const found = [];
    for (let at = 0; at < text.length; at += step) found.push(...frames.add(bytes(text.slice(at, at + step))));
    expect(found.map((one) => one.Offset)).toEqual([3, undefined, 6]);
    expect(found[0]?.File).toBe('alloc/logs/a}b".stdout.0');
  }
});

it('goes on after the last frame', () => {
  const feed = new FrameFeed('client/fs/logs/a?task=t');
  expect(feed.next()).toBe('client/fs/logs/a?task=t');
  expect(feed.take(bytes(frame('grün\nhal', 9)))).toBe('grün\nhal');
  // The next frame broke off.
  expect(feed.take(bytes(frame('f\n', 11).slice(0, 20)))).toBe('');
  expect(feed.next()).toBe('client/fs/logs/a?task=t&position=0.9');
  expect(feed.take(bytes(frame('f\n', 11)))).toBe('f\n');
  // A character over two frames, and the next file.
  const [first = 0, second = 0] = bytes('ü');
  const half = (byte: number, offset: number) => JSON.stringify({ Data: btoa(String.fromCharCode(byte)), File: 'x.stdout.1', Offset: offset });
  expect(feed.take(bytes(half(first, 1)))).toBe('');
  expect(feed.take(bytes(half(second, 2)))).toBe('ü');
  expect(feed.next()).toBe('client/fs/logs/a?task=t&position=1.2');
});

it('repeats nothing that an older agent sends again', () => {
  const feed = new FrameFeed('r?');
  feed.take(bytes(frame('one\ntwo\n', 8)));
  expect(feed.take(bytes(frame('one\ntwo\nthree\n', 14)))).toBe('three\n');
  expect(feed.take(bytes(frame('two\n', 8)))).toBe('');
  expect(unread(bytes('ab'), { number: 1, offset: 2 }, { number: 2, offset: 0 }).length).toBe(0);
  expect(unread(bytes('ab'), { number: 3, offset: 2 }, { number: 2, offset: 9 }).length).toBe(2);
});

it('shows a log that began again', () => {
  const feed = new FrameFeed('r?');
  feed.take(bytes(frame('old\n', 4, 'x.stdout.3')));
  const again = JSON.stringify({ File: 'x.stdout.0', FileEvent: 'file truncated' });
  expect(feed.take(bytes(again + frame('new\n', 4, 'x.stdout.0')))).toBe('new\n');
});

it('says where text is missing', () => {
  const feed = new TextFeed('r', '(gap)');
  expect([feed.next(), feed.take(bytes('a\n'))]).toEqual(['r', 'a\n']);
  expect([feed.next(), feed.take(bytes('b\n')), feed.take(bytes('c\n'))]).toEqual(['r', '\n(gap)\nb\n', 'c\n']);
});

it('labels whole lines, empty ones too', () => {
  const feed = labelled(new FrameFeed('r?'), 'stderr');
  expect(feed.take(bytes(frame('one\n\nt', 6)))).toBe('stderr one\nstderr \n');
  expect(feed.take(bytes(frame('wo\n', 9)))).toBe('stderr two\n');
});

it('continues the log of a group with the places of its outputs', () => {
  const log = new GroupLog(false);
  const feed = new GroupFeed('caravan/logs?job_id=j', log, () => undefined);
  expect(feed.next()).toBe('caravan/logs?job_id=j');
  // An agent of an older version names no places.
  expect(feed.next()).toBeUndefined();
  const source = { ID: 0, AllocID: 'a/1', AllocName: 'j.g[0]', TaskGroup: 'g', Task: 'web x', Type: 'stdout', NodeName: 'n', State: 'open' };
  feed.take(bytes(`${JSON.stringify({ Sources: [source], Since: 7 })}\n`));
  expect(plain(feed.take(bytes(`${JSON.stringify({ ID: 0, Lines: ['x'], At: '3.1200' })}\n{"ID":0,"Li`)))).toBe('a/1[0] web x x\n');
  expect(feed.next()).toBe('caravan/logs?job_id=j&since=7&after=a%2F1%2Fweb+x%2Fstdout%2F3.1200');
  expect(feed.take(bytes('{}\n'))).toBe('');
});
