"""What tests build, in one place. A test file imports from here, never from another test file.

Builders:
    ``catalogs``: catalogs of models m0, m1, ...; entries of models on a local server
    ``templates``: a chain with a loop; loops that merge histories, and branch
    ``tries``: annotated tries, by hand or random: of paths, branching, merged
    ``tool_episodes``: random episodes on declared tools, in virtual time
    ``tables``: complete tables of random rows
    ``plays``: races of plans whose truth is known, played to their end
    ``outcome_tables``: tables of first answers, and evidence bought from them
    ``stores``: stores whose truth is known
    ``crossed``: every pair of two lists of cases, most of them left to the long tests
    ``batch_files``: the lines and the dollars that a batch leaves
    ``tool_sessions``: sessions of a shop, whose reads follow from what came before; logs of them

Oracles, which find the best plan by trying them all:
    ``oracles.brute_force``, ``oracles.contingent_brute_force``, ``oracles.merged_plans``: on paths, with branches, merged
    ``oracles.random_cases``, ``oracles.branching_cases``: random tries and questions
    ``oracles.contingent_checks``, ``oracles.mixtures_of_plans``, ``oracles.merged_checks``: the planner beside them

Worlds, from which requests, rows and plans' true values are drawn:
    ``worlds.answers``: a latent model of answers on a chain
    ``worlds.branching_answers``: the same of an application that branches
    ``worlds.outcomes``: random latent models, with every sequence of answers written out
    ``worlds.verdicts``: stores in which freedom helps, or does not
    ``worlds.drift``: rows that are as a trie says, or not
    ``worlds.fleet_views``: views of fleets
    ``worlds.replays``: recorded calls of a step, models that answer them by a rule, and a person who compares answers
    ``worlds.judges``: a model that compares two answers by a rule
    ``worlds.piloted``: an application of one call under an autopilot, which looks at its store when it is told to
    ``worlds.unlabelled``: an application of one call whose requests have no labels, or some, and models that answer by a rule
    ``worlds.shared_rates``, ``worlds.shared_dollars``: processes that share limits and budgets, step by step

Applications, with the adapter's parts that they need:
    ``agent_packages``: supervisors, swarms and deep agents, as their packages build them
    ``openai_like``: a chat model with the settings of LangChain's for OpenAI, and a server that counts its requests
    ``apps.streaming``: a scripted model that streams the calls of its script, and guesses of calls
    ``apps.echo``: generate, execute, repair, on a model that says its name; five kinds of state
    ``apps.asking``: nodes that ask a person, hidden in many ways
    ``apps.branching``: router, corrective loop, supervisor, experts; a policy that keeps what it is asked
    ``apps.chat``: scripted chat models of two makes, with tools and structure
    ``apps.signals``: a graph that declares signals; a policy that keeps what it is told
    ``canaries``: a stage that runs twice, under a canary, whose calls cost what they are told to
    ``apps.paying``, ``apps.capped``: every call costs dollars; also programs, resumed by another process
    ``apps.savers``: a checkpointer in a file, and checkpoints as text

Toys, workflows to profile whose every row is known; loaded by name in child processes:
    ``toys.profiling``: generate, check, repair
    ``toys.branching``: a router, a bounded search, a reply
    ``toys.replayed``: applications that are run from the start with recorded answers
    ``toys.chat``: an application that holds its models at module level
    ``toys.judged``: scored by a model
    ``toys.verified``: answers that a simulated model judges
    ``toys.classified``: requests of two kinds, which a simulated model tells apart
    ``toys.pairs``: any two of eight features that plans can depend on
    ``toys.priced``: on a backend that prices its calls beforehand
    ``toys.sdk``: on a real SDK
    ``toys.wired``: on a remote backend whose wire answers by itself; rate limits that count
    ``toys.batched``: generate, check, repair on providers that have batches; killed at each of their events
    ``toys.rounds``: samplers that propose in rounds
    ``toys.profiling_process``: a run in a process of its own

Contracts of our own protocols, which each implementation inherits:
    ``contracts.stores``, ``contracts.workers``, ``contracts.policies``

Wire formats, as the providers document them:
    ``wire.server``: a server on loopback that answers as each test says
    ``wire.client``: a remote backend on it, four ways to ask, and what every failure looks like
    ``wire.providers``: every provider in one table
    ``wire.openai_format``, ``responses_format``, ``anthropic_format``, ``bedrock_format``, ``gemini_format``
    ``wire.langchain_chat``: a LangChain model over the openai SDK

Servers and processes:
    ``servers.postgres_server``, ``servers.redis_server``: real ones, given, running or started
    ``waiting``: until something holds, with a limit
    ``servers.loaded_python``: processes that have everything imported
    ``servers.fake_cluster``: the hosts of a cluster, without Ray
    ``servers.gateways``: a gateway before a test's own wire server
    ``servers.llama_server``: llama.cpp's server over a small model, for tests of a real engine
    ``servers.ray_cluster``: real nodes of Ray, and what waits for its processes to end
    ``servers.batch_provider``: the batches of OpenAI, Anthropic and Gemini, and what was bought there

The rest:
    ``house``: the source as `scripts/house.py` sees it
    ``front_door_types``: the types of the public names, for `make types`
    ``gold_queries``: whether a gold query has one answer
    ``optional``: the skip of a test file without a library
    ``outside_world``: the pytest plugin behind `make test-fast` and `make test-times`
"""
