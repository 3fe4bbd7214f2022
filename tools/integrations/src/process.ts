/** Programs of a project: one that ends, or a server that is ended. */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ProgramOptions {
  readonly cwd: string;
  readonly timeoutMs: number;
  readonly env?: Readonly<Record<string, string>>;
}

export interface RunningServer {
  readonly url: string;
  /** The end of what it has written. */
  output(): string;
  close(): Promise<void>;
}

const maxShownLines = 40;
const maxShownColumns = 300;

/** The end of a program's output; minified code, which errors quote, is cut. */
function tail(output: string): string {
  const lines = output.trimEnd().split('\n').slice(-maxShownLines);
  return lines
    .map((line) => (line.length > maxShownColumns ? `${line.slice(0, maxShownColumns)} ...` : line))
    .join('\n');
}

/** The project's programs and this Node come first; nothing is reported home. */
function environmentOf({ cwd, env }: ProgramOptions): NodeJS.ProcessEnv {
  const folders = [join(cwd, 'node_modules', '.bin'), dirname(process.execPath), process.env['PATH'] ?? ''];
  const quiet = { NO_COLOR: '1', NEXT_TELEMETRY_DISABLED: '1', DO_NOT_TRACK: '1', NO_UPDATE_NOTIFIER: '1' };
  const { FORCE_COLOR: _, NODE_OPTIONS: __, ...inherited } = process.env;
  return { ...inherited, ...quiet, PATH: folders.join(delimiter), ...env };
}

/** In its own process group, so that the processes it starts end with it. */
function start(command: readonly string[], options: ProgramOptions): { child: ChildProcess; output: () => string } {
  const [program = '', ...rest] = command;
  const child = spawn(program, rest, {
    cwd: options.cwd,
    env: environmentOf(options),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  const collect = (chunk: Buffer): void => {
    output += chunk.toString('utf8');
  };
  child.stdout?.on('data', collect);
  child.stderr?.on('data', collect);
  return { child, output: () => output };
}

function endGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * Runs a program to its end.
 * @returns what it wrote
 * @throws {Error} with the end of its output when it fails or exceeds the time limit
 */
export async function runToEnd(command: readonly string[], options: ProgramOptions): Promise<string> {
  const { child, output } = start(command, options);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    endGroup(child, 'SIGKILL');
  }, options.timeoutMs);
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    if (isLate)
      throw new Error(`${command.join(' ')}: not done after ${options.timeoutMs / 1000} s\n${tail(output())}`);
    if (code !== 0) throw new Error(`${command.join(' ')}: exit code ${code}\n${tail(output())}`);
    return output();
  } finally {
    clearTimeout(timer);
  }
}

const maxPortTries = 20;

/** Below the ports that systems give to servers without one, so that no other server takes it before ours listens. */
async function freePort(): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    const port = randomInt(20_000, 32_000);
    try {
      const server = createServer().listen(port, '127.0.0.1');
      await once(server, 'listening');
      server.close();
      await once(server, 'close');
      return port;
    } catch (error) {
      if (attempt === maxPortTries) throw error;
    }
  }
}

/**
 * Starts a server and waits until it answers.
 * @param command with `{port}` in place of the port
 * @throws {Error} with the end of its output when it ends or does not answer within the time limit
 */
export async function startServer(command: readonly string[], options: ProgramOptions): Promise<RunningServer> {
  const port = await freePort();
  const words = command.map((word) => word.replace('{port}', String(port)));
  const { child, output } = start(words, options);
  const ended = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
    child.once('error', () => resolve());
  });
  const close = async (): Promise<void> => {
    endGroup(child, 'SIGTERM');
    await Promise.race([ended, sleep(5000, undefined, { ref: false })]);
    endGroup(child, 'SIGKILL');
  };
  const url = `http://localhost:${port}/`;
  const deadline = Date.now() + options.timeoutMs;
  while (Date.now() < deadline && child.exitCode === null) {
    const isUp = await fetch(url).then(
      () => true,
      () => false,
    );
    if (isUp) return { url, output: () => tail(output()), close };
    await Promise.race([ended, sleep(100)]);
  }
  await close();
  throw new Error(`${words.join(' ')}: did not answer at ${url}\n${tail(output())}`);
}
