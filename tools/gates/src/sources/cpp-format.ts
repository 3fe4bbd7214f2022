/** The format of C and C++: clang-format, compiled to WebAssembly, with the settings of `.clang-format` in the root. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from '@wasm-fmt/clang-format';
import { isCpp, isFixture, listFiles } from '../workspace/workspace.ts';

/** Calls `visit` with every file whose text is not the formatted one. */
function forEachUnformatted(root: string, visit: (path: string, formatted: string) => void): void {
  const style = readFileSync(join(root, '.clang-format'), 'utf8');
  const files = listFiles(root, (path) => isCpp(path) && !isFixture(path));
  if (files.length === 0) throw new Error(`${root}: no C++ file was found, so nothing was checked`);
  for (const path of files) {
    const text = readFileSync(join(root, path), 'utf8');
    const formatted = format(text, 'source.cpp', style);
    if (formatted !== text) visit(path, formatted);
  }
}

export function checkCppFormat(root: string): string[] {
  const problems: string[] = [];
  forEachUnformatted(root, (path) => problems.push(`${path} is not formatted; run "pnpm format"`));
  return problems;
}

export function writeCppFormat(root: string): void {
  forEachUnformatted(root, (path, formatted) => writeFileSync(join(root, path), formatted));
}
