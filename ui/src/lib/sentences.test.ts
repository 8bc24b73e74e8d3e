import { expect, it } from 'vitest';
import { linked, nodesByName, type Known } from './sentences';

const paths = (sentence: string, known?: Known) => {
  const parts = linked(sentence, known);
  expect(parts.map((part) => part.text).join('')).toBe(sentence);
  return parts.filter((part) => part.path).map((part) => `${part.text} ${part.path}`);
};

it('links what a sentence names', () => {
  expect(paths('Waits for a claim on volume "data" in namespace "team" to be released.')).toEqual(['data storage/volumes/csi/data@team']);
  expect(paths('Waits for plugin "host/path" to become healthy.')).toEqual(['host/path storage/plugins/host%2Fpath']);
  expect(paths('waits for the claim of allocation 1a2b3c4d on node 99887766 to end (mounted)')).toEqual([
    '1a2b3c4d allocations/1a2b3c4d',
    '99887766 clients/99887766',
  ]);
  expect(paths('node 99887766: waits for its tasks')).toEqual(['99887766 clients/99887766']);
});

it('knows nodes by their names, and a namespace from beside the sentence', () => {
  const nodes = nodesByName([{ ID: 'id-1', Name: 'web.one' }, { ID: 'id-2', Name: 'twin' }, { ID: 'id-3', Name: 'twin' }]);
  expect(paths('smallest missing: 10 MiB on node web.one.', { nodes })).toEqual(['web.one clients/id-1']);
  expect(paths('on node twin, on node constructor', { nodes })).toEqual([]);
  expect(paths('volume "data" is held by job "a b"', { ns: 'team' })).toEqual(['data storage/volumes/csi/data@team', 'a b jobs/a%20b@team']);
  expect(paths('volume "data" is held')).toEqual([]);
});

it('links nothing else', () => {
  expect(paths('Waits for host volume "data" in namespace "team" to be there and free.')).toEqual([]);
  expect(paths('waits for the volume to be created; 2 nodes have no room: the node does not qualify')).toEqual([]);
  expect(paths('volume "\\x" in namespace "team"')).toEqual([]);
});
