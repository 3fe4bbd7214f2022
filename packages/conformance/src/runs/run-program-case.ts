/** Runs a whole program and compares the outputs of each step. */
import { createScalarBlock, validateProgram, type Backend, type BufferHandle, type Executable } from '@winnow/ops';
import type { Arithmetic } from '../arithmetic.js';
import { compareOutput } from '../compare.js';
import type { ProgramCase } from '../programs/program-case.js';
import { fallbackFailures } from './run-kernel-case.js';

/** @returns failures, one line each */
export async function checkProgramCase(
  backend: Backend,
  programCase: ProgramCase,
  { arithmetic, allowFallback = false }: { readonly arithmetic: Arithmetic; readonly allowFallback?: boolean },
): Promise<string[]> {
  const { program, contents, steps } = programCase.create(arithmetic);
  validateProgram(program);
  const handles = new Map<string, BufferHandle>();
  const failures: string[] = [];
  let executable: Executable | undefined;
  try {
    for (const { name, usage, sizeBytes } of program.buffers) {
      const bytes = contents.get(name);
      if (bytes === undefined) continue;
      handles.set(name, backend.allocate({ sizeBytes, usage, label: name }));
      await backend.write(handles.get(name)!, 0, bytes);
    }
    executable = await backend.prepare(program, {
      buffers: handles,
      onUnsupported: allowFallback ? 'fallback' : 'error',
    });
    if (!allowFallback) failures.push(...fallbackFailures(executable));
    const block = createScalarBlock(program.scalars, program.symbols);
    for (const [index, { scalars, boundaries, expected }] of steps.entries()) {
      for (const [name, values] of Object.entries(scalars)) block.slot(name).set(values);
      const onBoundary = async (boundary: string): Promise<void> => {
        for (const [name, bytes] of Object.entries(boundaries?.[boundary] ?? {})) {
          await backend.write(handles.get(name)!, 0, bytes);
        }
      };
      await executable.run(block.words, boundaries === undefined ? {} : { onBoundary });
      for (const [name, output] of Object.entries(expected)) {
        if (output.kind === 'bytes') continue;
        const length = output.values.length;
        const target = output.kind === 'integers' ? new Int32Array(length) : new Float32Array(length);
        await executable.read(name, target);
        const failure = compareOutput(target, output);
        if (failure !== undefined) failures.push(`${programCase.name}: step ${index}, ${name}: ${failure}`);
      }
    }
  } catch (error) {
    failures.push(`${programCase.name}: threw ${String(error)}`);
  } finally {
    await executable?.dispose();
    for (const handle of handles.values()) backend.free(handle);
  }
  return failures;
}
