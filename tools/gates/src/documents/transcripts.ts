/**
 * Transcripts of terminals: a `console` block shows commands after `$ ` and what they print. Those of `winnow`, and
 * `npm run demo`, that claim an output are run, unless the block is marked `no-run`: it needs a model, a network or a
 * person. `...` stands for anything.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { runProgram } from '../workspace/run.ts';
import { matchesClaim } from './claims.ts';

const runLimitMs = 60_000;
/** Stands for `winnow` with the arguments of the demo: the packages are installed and built when the gate runs. */
const demoCommand = 'npm run demo';

export interface Command {
  /** Line of the document. */
  readonly line: number;
  /** For a shell. */
  readonly text: string;
  /** What it prints; empty when nothing is claimed. */
  readonly output: string;
}

/** @throws {Error} for a claimed output of another command */
export function extractTranscripts(markdown: string): Command[] {
  const commands: Command[] = [];
  for (const { 1: mark, 2: block = '', index } of markdown.matchAll(/^```console( no-run)?\n([^]*?)^```$/gm)) {
    if (mark !== undefined) continue;
    const firstLine = markdown.slice(0, index).split('\n').length + 1;
    commands.push(...commandsOf(block.split('\n').slice(0, -1), firstLine));
  }
  const other = commands.find(
    ({ text, output }) => output !== '' && text !== demoCommand && !text.startsWith('winnow '),
  );
  if (other) throw new Error(`line ${other.line}: only the output of winnow is compared; mark the block no-run`);
  return commands.filter(({ output }) => output !== '');
}

function commandsOf(lines: readonly string[], firstLine: number): Command[] {
  const commands: { line: number; text: string; output: string }[] = [];
  for (const [index, line] of lines.entries()) {
    const last = commands.at(-1);
    if (line.startsWith('$ ') && (last === undefined || isComplete(last.text))) {
      commands.push({ line: firstLine + index, text: line.slice(2), output: '' });
    } else if (last !== undefined) {
      if (isComplete(last.text)) last.output += `${line}\n`;
      else last.text += `\n${line}`;
    }
  }
  return commands;
}

/** A shell does not wait for the end of a quoted text or of a continued line. */
function isComplete(text: string): boolean {
  return text.split("'").length % 2 === 1 && !text.endsWith('\\');
}

/**
 * @param winnow path of the built command line
 * @param demoArguments what `npm run demo` passes to it
 */
export function checkTranscripts(
  documents: readonly string[],
  scratch: string,
  winnow: string,
  demoArguments: readonly string[],
): string[] {
  const folder = join(scratch, 'bin');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'winnow'), `#!/bin/sh\nexec "${process.execPath}" "${winnow}" "$@"\n`, { mode: 0o755 });
  // documents show what WebAssembly computes, whether or not native kernels were compiled
  const env = { ...process.env, PATH: `${folder}:${process.env['PATH']}`, WINNOW_NATIVE: 'off' };
  return documents.flatMap((document) =>
    extractTranscripts(readFileSync(document, 'utf8')).flatMap(({ line, text, output }) => {
      const place = `${basename(document)}:${line}`;
      const [program, ...rest] =
        text === demoCommand ? [process.execPath, winnow, ...demoArguments] : ['sh', '-c', text];
      const run = runProgram(program as string, rest, { cwd: scratch, timeoutMs: runLimitMs, env });
      if (run.code !== 0) return [`${place}: the command ends with code ${run.code}:\n${run.output.trim()}`];
      if (matchesClaim(output, run.output)) return [];
      return [`${place}: the document shows\n${output.trim()}\nthe command prints\n${run.output.trim()}`];
    }),
  );
}
