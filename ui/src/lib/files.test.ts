import { expect, it } from 'vitest';
import { asText, below, crumbs, sorted, type FileRow } from './files';

const row = (Name: string, IsDir: boolean): FileRow => ({ Name, IsDir, Size: 0, FileMode: '', ModTime: '' });

it('names paths from the root of the allocation', () => {
  expect(below([])).toBe('/');
  expect(below(['alloc', '', 'logs'])).toBe('/alloc/logs');
  expect(crumbs(['a', 'b']).map((crumb) => crumb.parts.join('/'))).toEqual(['a', 'a/b']);
});

it('lists directories first', () => {
  expect(sorted([row('b', false), row('z', true), row('a', false)]).map((file) => file.Name)).toEqual(['z', 'a', 'b']);
});

it('tells text from bytes, also where a character is cut', () => {
  const bytes = new TextEncoder().encode('grün');
  expect(asText(bytes, true)).toBe('grün');
  expect(asText(bytes.subarray(0, 3), false)).toBe('gr');
  expect(asText(bytes.subarray(0, 3), true)).toBeUndefined();
  expect(asText(Uint8Array.of(1, 0, 2), true)).toBeUndefined();
});
