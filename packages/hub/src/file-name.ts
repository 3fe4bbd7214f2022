/** Names of files inside a folder or repository: relative, with `/`, and never escaping it. */
import { ArgumentError } from '@winnow/tensor';

/**
 * True for `config.json` or `1_Pooling/config.json`; false for anything absolute, with `.` or `..` parts, empty parts,
 * backslashes, drive letters or control characters, under the rules of any operating system.
 */
export function isSafeFileName(name: string): boolean {
  if (
    typeof name !== 'string' ||
    name.length === 0 ||
    name.length > 1024 ||
    hasControlCharacter(name) ||
    /[\\:]/.test(name)
  )
    return false;
  return name.split('/').every((part) => part !== '' && part !== '.' && part !== '..');
}

/** @throws {ArgumentError} */
export function checkFileName(name: string): void {
  if (!isSafeFileName(name)) {
    throw new ArgumentError({
      argument: 'name',
      expected: 'the relative name of a file inside the folder',
      actual: JSON.stringify(name.slice(0, 200)),
    });
  }
}

function hasControlCharacter(name: string): boolean {
  for (let i = 0; i < name.length; i++) if (name.charCodeAt(i) < 0x20) return true;
  return false;
}
