/** Processes of the built command line, confined as the compose file confines containers where the host lets a test do so. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';

const main = join(repoRoot, 'apps', 'cli', 'dist', 'main.js');
/** That of the image. */
const userId = 1000;

/** A mount namespace in which all file systems are read-only, and a user without rights. */
const confining = [
  'unshare',
  '--mount',
  'sh',
  '-c',
  'mount --make-rprivate / && mount -o remount,ro,bind / && exec "$@"',
  'sh',
  'setpriv',
  `--reuid=${userId}`,
  `--regid=${userId}`,
  '--clear-groups',
  '--no-new-privs',
];

/** Whether this host can confine a process that reads the command line. */
export const canConfine: boolean = run([...confining, process.execPath, main, '--version']) === 0;

function run([program = '', ...rest]: readonly string[]): number | null {
  return spawnSync(program, rest, { stdio: 'ignore' }).status;
}

export interface WinnowProcess {
  readonly pid: number;
  /** Resolves to the address that it prints. */
  readonly url: Promise<string>;
  readonly stderr: () => string;
  /** @returns the exit code */
  end(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null>;
}

export function startWinnow(argv: readonly string[], environment: Readonly<Record<string, string>>): WinnowProcess {
  const [program = '', ...rest] = [...(canConfine ? confining : []), process.execPath, main, ...argv];
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env;
  // of the image: nothing exists at this path here
  const image = { PATH, NODE_COMPILE_CACHE, NODE_ENV: 'production', XDG_CACHE_HOME: '/cache', HOME: '/nonexistent' };
  const child = spawn(program, rest, { env: { ...image, ...environment }, stdio: ['ignore', 'pipe', 'pipe'] });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (part: string) => (stderr += part));
  const url = addressOf(child, () => `winnow ${argv.join(' ')} ended: ${stderr}`);
  url.catch(() => {}); // a worker has none
  return {
    pid: child.pid ?? 0,
    url,
    stderr: () => stderr,
    async end(signal) {
      if (child.exitCode === null && child.signalCode === null) {
        const exit = once(child, 'exit');
        child.kill(signal);
        await exit;
      }
      return child.exitCode;
    },
  };
}

function addressOf(child: ChildProcess, ended: () => string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (part: string) => {
      text += part;
      const address = /^listening on (\S+)$/m.exec(text)?.[1];
      if (address !== undefined) resolve(address);
    });
    child.once('error', reject).once('close', () => reject(new Error(ended())));
  });
}
