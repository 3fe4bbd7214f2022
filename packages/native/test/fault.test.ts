/** Kernels that crash: the call throws, and everything else in the process that relies on signals works as before. */
import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { findAddon } from '../src/index.node.js';

const path = findAddon();

/** Prints how each call ends. The task lies in the part of the memory that is reserved only, so that reading it faults. */
const program = `
const addon = require(${JSON.stringify(path)});
const memory = new WebAssembly.Memory({ initial: 1, maximum: 65536, shared: true });
const { run } = addon.attach(new Uint8Array(memory.buffer), addon.levels()[0]);
const bytes = Buffer.from('0061736d010000000104016000000302010005030100010708010474726170' + '00000a0a010800417c2802001a0b', 'hex');
const { trap } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
for (const call of [() => run(0x7fff0000), trap, () => run(0x7fff0000), trap]) {
  try {
    call();
    require('fs').writeSync(1, 'returned\\n');
  } catch (error) {
    require('fs').writeSync(1, error.message + '\\n');
  }
}
`;
const expected = 'a native kernel crashed\nmemory access out of bounds\n'.repeat(2);

function run(script: string): readonly [output: string, signal: NodeJS.Signals | null] {
  const { stdout, signal } = spawnSync(process.execPath, ['-e', script], { encoding: 'utf8', timeout: 60_000 });
  return [stdout, signal];
}

describe.skipIf(path === undefined || process.platform === 'win32')('a kernel that crashes', () => {
  it('throws, and WebAssembly still traps', () => {
    expect(run(program)).toEqual([expected, null]);
  });

  it('throws in each of several threads', () => {
    const threads = `new (require('worker_threads').Worker)(${JSON.stringify(program)}, { eval: true })`;
    const next = `.on('exit', () => ${threads})`;
    expect(run(`${program}${threads}${next}`)).toEqual([expected.repeat(3), null]);
  });

  it('leaves the handlers in place when the only thread that has loaded the addon ends', () => {
    const [, trap = ''] = /^(const bytes[^]*?exports;)$/m.exec(program) ?? [];
    const thread = `new (require('worker_threads').Worker)(${JSON.stringify(program)}, { eval: true })`;
    const print = `require('fs').writeSync(1, error.message + '\\n')`;
    const script = `${trap}\n${thread}.on('exit', () => { try { trap(); } catch (error) { ${print}; } });`;
    expect(run(script)).toEqual([`${expected}memory access out of bounds\n`, null]);
  });

  it('leaves faults outside of kernels as they are', () => {
    expect(run(`${program}process.kill(process.pid, 'SIGSEGV'); setTimeout(() => {}, 10000);`)).toEqual([
      expected,
      'SIGSEGV',
    ]);
  });
});
