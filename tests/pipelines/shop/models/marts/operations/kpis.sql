select 'orders' as kpi, cast(count(*) as decimal(18, 2)) as value from {{ ref('fct_orders') }}
union all
select 'revenue', sum(total) from {{ ref('fct_orders') }}
union all
select 'sessions', cast(count(*) as decimal(18, 2)) from {{ ref('int_sessions') }}
union all
select 'late shipments', cast(count(*) as decimal(18, 2)) from {{ ref('late_shipments') }}
