/** Validators of requests: compiled for the first request that needs them, once for all servers of a process. */
import createCompilerFactory from '@fastify/ajv-compiler';
import type { FastifySchemaCompiler, FastifyServerOptions } from 'fastify';

type Compile = FastifySchemaCompiler<unknown>;
type Validator = ReturnType<Compile>;
type BuildCompiler = (sharedSchemas: object, options: object) => Compile;
type SchemaController = NonNullable<FastifyServerOptions['schemaController']>;

const buildCompiler = createCompilerFactory() as unknown as BuildCompiler;
const customOptions = {
  // bodies are rejected, never coerced
  ...{ coerceTypes: false, removeAdditional: false, useDefaults: false, allowUnionTypes: true },
  // TypeBox makes valid schemas, and a test checks those that routes share
  ...{ meta: false, validateSchema: false },
};

/** By their shared schemas, which are the same for all servers. */
const compilers = new Map<string, Compile>();

const buildLazyCompiler: BuildCompiler = (sharedSchemas) => {
  const key = JSON.stringify(sharedSchemas);
  let compile = compilers.get(key);
  if (compile === undefined) compilers.set(key, (compile = lazyCompiler(sharedSchemas)));
  return compile;
};

function lazyCompiler(sharedSchemas: object): Compile {
  let compile: Compile | undefined;
  const validators = new Map<string, Validator>();
  return (route) => {
    const key = JSON.stringify(route.schema);
    const found = validators.get(key);
    if (found !== undefined) return found;
    let compiled: Validator | undefined;
    const validate: Validator = (data: unknown) => {
      compile ??= buildCompiler(sharedSchemas, { customOptions });
      compiled ??= compile(route);
      const isValid = compiled(data);
      validate.errors = compiled.errors ?? null;
      return isValid;
    };
    validators.set(key, validate);
    return validate;
  };
}

export const schemaController = {
  compilersFactory: { buildValidator: buildLazyCompiler },
} as unknown as SchemaController;
