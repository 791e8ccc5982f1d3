pst_test(manifest SOURCES unit/test_manifest.c LIBS pst_schemas)
pst_test(trainer_core SOURCES unit/test_trainer_core.c LIBS pst_trainer_core)
pst_test(sim_trainer SOURCES sim/sim_trainer.c LIBS pst_trainer_core ARGS 2000 LABELS sim TIMEOUT 900)
pst_test(trainer_live SOURCES live/test_trainer_live.c LIBS pst_view pst_client LABELS live TIMEOUT 400)
