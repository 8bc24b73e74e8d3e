import { describe, expect, it } from 'vitest';
import { all, chosen, contains, finds, fitsText, HOSTS, isOneOf, onNode, order, own, paged, place, version } from './list';

const query = (text: string) => new URLSearchParams(text);
const KEYS = ['name', 'modify'];

describe('lists in pages', () => {
  it('reads the order of an address, and ignores unknown keys of other pages', () => {
    expect(order(query('sort=name'), KEYS)).toEqual({ key: 'name', desc: false });
    expect(order(query('sort=modify&desc=true'), KEYS)).toEqual({ key: 'modify', desc: true });
    expect(order(query('sort=compositeStatus&desc=true'), KEYS)).toBeUndefined();
  });

  it('asks for one page with its total', () => {
    expect(paged(query(''), KEYS, true)).toEqual({ per_page: 100, next_token: '', count: true, reverse: true });
    expect(paged(query('sort=modify&desc=true&cursorAt=x&pageSize=25'), KEYS, true)).toEqual({
      per_page: 25, next_token: 'x', count: true, sort: '-modify',
    });
    expect(paged(query('pageSize=-3'), KEYS).per_page).toBe(100);
    expect(paged(query('pageSize=99999'), KEYS).per_page).toBe(1000);
    expect(paged(query('nextToken=12.a'), KEYS).next_token).toBe('12.a');
  });

  it('pages a second list by parameters of its own', () => {
    const address = query('cursorAt=a&page=3&sort=modify&dhvCursorAt=b&dhvPage=2&dhvSortProperty=name&dhvSortDescending=true');
    expect(paged(address, KEYS, false, HOSTS)).toEqual({ per_page: 100, next_token: 'b', count: true, sort: '-name' });
    expect(place(address, 100, 450, HOSTS)).toBe('101–200 of 450');
    expect(place(address, 100, 450)).toBe('201–300 of 450');
    expect(paged(query('nextToken=x'), KEYS, false, HOSTS).next_token).toBe('');
  });

  it('finds a text in any case, as it is', () => {
    expect(finds(['Name', 'ID'], ' a+b ')).toBe('(Name matches "(?i)a\\\\+b" or ID matches "(?i)a\\\\+b")');
    expect(finds(['Name'], ' ')).toBe('');
    expect(finds(['Name'], null)).toBe('');
  });

  it('goes from a column through both directions to the usual order', () => {
    const first = chosen(undefined, 'modify', true);
    expect(first).toEqual({ key: 'modify', desc: true });
    const second = chosen(first, 'modify', true);
    expect(second).toEqual({ key: 'modify', desc: false });
    expect(chosen(second, 'modify', true)).toBeUndefined();
    expect(chosen(second, 'name', false)).toEqual({ key: 'name', desc: false });
  });

  it('names the place of a page', () => {
    expect(place(query(''), 100, 48211)).toBe('1–100 of 48,211');
    expect(place(query('cursorAt=x&page=3'), 100, 48211)).toBe('201–300 of 48,211');
    expect(place(query('cursorAt=x'), 100, 48211)).toBe('100 of 48,211');
    expect(place(query('cursorAt=x&page=3'), 100, 250)).toBe('100 of 250');
    expect(place(query(''), 0, 0)).toBe('');
    expect(place(query(''), 100, undefined)).toBe('');
  });

  it('builds filter expressions', () => {
    expect(all('', isOneOf('Status', 'running'), false, contains(['ID', 'Name'], 'a"b'), own('Priority > 3'))).toBe(
      'Status == "running" and (ID contains "a\\"b" or Name contains "a\\"b") and (Priority > 3)',
    );
    expect(isOneOf('Status', '["dead","pending"]')).toBe('(Status == "dead" or Status == "pending")');
    expect(isOneOf('Status', '[]')).toBe('');
    expect(isOneOf('Name', '[x')).toBe('Name == "[x"');
    expect(own('  ')).toBe('');
  });
});

it('finds a text in words', () => {
  expect(fitsText(null, 'a')).toBe(true);
  expect(fitsText(' WEB ', 'my-web', undefined)).toBe(true);
  expect(fitsText('x', 'a', undefined)).toBe(false);
});

it('reads what addresses of the reference name', () => {
  expect(onNode('["1a2b3c4d"]')).toBe('(NodeName == "1a2b3c4d" or NodeID matches "^1a2b3c4d")');
  expect(onNode('web-1')).toBe('NodeName == "web-1"');
  expect(onNode(null)).toBe('');
  expect(version('["2","3"]')).toBe('(Job.Version == 2 or Job.Version == 3)');
  expect(version('x')).toBe('Job.Version == -1');
});
