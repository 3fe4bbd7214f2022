/** The suite of `@winnow/conformance` over one variant of the kernels, at 1, 2 and 4 threads. */
import { readFileSync } from 'node:fs';
import { describeBackend, type SupportTable } from '@winnow/conformance';
import { createWasmBackend, type CreateWasmBackendOptions } from '../src/index.node.js';

const support = JSON.parse(readFileSync(new URL('support.json', import.meta.url), 'utf8')) as SupportTable;

/** Small enough that hundreds of backends leave the address space alone. */
const maxMemoryBytes = 2 ** 26;

export function describeVariant(name: string, options: CreateWasmBackendOptions): void {
  describeBackend({
    name,
    expectedSupport: support,
    create: () => createWasmBackend({ maxMemoryBytes, activations: 'f32', maxCallerMs: 0, ...options }),
  });
}
