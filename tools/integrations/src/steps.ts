/** Runs the steps of an installed project, and compares the text that they generate. */
import { join } from 'node:path';
import { readGeneratedText } from './page.ts';
import { runToEnd, startServer, type RunningServer } from './process.ts';
import type { FolderStep, ServeStep, Step } from './project.ts';
import { serveFolder } from './file-server.ts';

/** What the demo model adds to "The old man looked at the sea and": 20 tokens, greedily, in every runtime. */
export const expectedText = ' the other.\n\n"Is it?" said the man, "Is it not?"';

const timeoutMs = 180_000;

/** Whether the step opens a page. */
export function needsBrowser(step: Step): boolean {
  return !('run' in step);
}

/** The text of the last line, as JSON. @throws {Error} when the line is no JSON string */
export function textOfLastLine(output: string): string {
  const line = output.trimEnd().split('\n').at(-1) ?? '';
  try {
    const text: unknown = JSON.parse(line);
    if (typeof text === 'string') return text;
  } catch {
    // reported below
  }
  throw new Error(`the last line of the output must be the generated text as JSON, found:\n${output.trimEnd()}`);
}

/** @throws {Error} when the texts differ */
export function checkText(text: string): void {
  if (text === expectedText) return;
  throw new Error(`generated another text: expected ${JSON.stringify(expectedText)}, found ${JSON.stringify(text)}`);
}

type Environment = Readonly<Record<string, string>>;

function serve(step: ServeStep | FolderStep, cwd: string, environment: Environment): Promise<RunningServer> {
  if ('folder' in step) return serveFolder(join(cwd, step.folder), step.headers);
  return startServer(step.serve, { cwd, timeoutMs, env: { ...environment, ...step.env } });
}

/**
 * @param environment for programs and servers
 * @throws {Error} when the step fails, or its text is not the expected one
 */
export async function runStep(step: Step, cwd: string, environment: Environment): Promise<void> {
  if ('run' in step) {
    const output = await runToEnd(step.run, { cwd, timeoutMs, env: { ...environment, ...step.env } });
    if (step.generates === true) checkText(textOfLastLine(output));
    return;
  }
  const server = await serve(step, cwd, environment);
  try {
    const page = 'serve' in step ? (step.page ?? '') : '';
    checkText(await readGeneratedText(new URL(page, server.url).href));
  } catch (error) {
    const output = server.output();
    const message = error instanceof Error ? error.message : String(error);
    throw new Error(output === '' ? message : `${message}\n\nthe server wrote:\n${output}`, { cause: error });
  } finally {
    await server.close();
  }
}
